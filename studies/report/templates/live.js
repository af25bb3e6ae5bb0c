(() => {
  const text = document.createElement("span"), bar = document.createElement("progress");
  const line = document.createElement("p");
  line.id = "live";
  line.className = "state";
  bar.setAttribute("aria-label", "Computed evaluations");
  line.append(bar, " ", text);
  (document.querySelector("header") ?? document.body).prepend(line);
  // a page that is loaded again shows the same place, with the same open details
  const list = () => [...document.querySelectorAll("details")], key = `${location.pathname} details`;
  const nameOf = (one) => {  // without numbers, which may differ after a reload
    const summary = one.querySelector("summary")?.textContent.replace(/\d+/g, "");
    return `${one.closest("figure[id], section")?.id}: ${summary}`;
  };
  const kept = JSON.parse(sessionStorage.getItem(key) ?? "{}"), seen = new Set();
  const restore = () => list().filter((one) => !seen.has(one) && one.innerText).forEach((one) => {
    seen.add(one);
    one.open = kept[nameOf(one)] ?? one.open;
  });
  restore();
  new MutationObserver(restore).observe(document.body, { childList: true, subtree: true });  // figures add theirs later
  addEventListener("pagehide", () => {
    sessionStorage.setItem(key, JSON.stringify(Object.fromEntries(list().map((one) => [nameOf(one), one.open]))));
  });
  const show = (found) => {
    const done = found.ok + found.failed, all = done + found.pending;
    bar.max = Math.max(all, 1);
    bar.value = done;
    const failed = found.failed ? `, ${found.failed.toLocaleString("en")} failed` : "";
    text.textContent = found.problem
      || `Live: ${done.toLocaleString("en")} of ${all.toLocaleString("en")} evaluations${failed}`;
    if (found.page !== shownPage) location.reload();
  };
  const poll = async () => {
    try {
      const response = await fetch("progress");
      if (!response.ok) throw response;
      show(await response.json());
      setTimeout(poll, 2000);
    } catch {
      text.textContent = "The server has ended. This page shows its last results.";
    }
  };
  poll();
})();
