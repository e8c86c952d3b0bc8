for (const figure of document.querySelectorAll("figure")) {
  const svg = figure.querySelector("svg.chart"), tip = figure.querySelector(".tip"), cross = figure.querySelector(".cross");
  if (!cross) continue;
  const [left, top, width, height] = svg.dataset.plot.split(" ").map(Number);
  const axis = (name) => svg.dataset[name].split(" ").map(Number);
  const value = ([low, high, log], part) => {
    const v = low + (high - low) * part;
    return +(log ? 10 ** v : v).toPrecision(4);
  };
  const x = axis("x"), y = axis("y");
  const lines = [...svg.querySelectorAll(".line")].map((line) => ({
    name: line.dataset.name,
    points: [...line.getAttribute("d").matchAll(/[ML]([\d.-]+) ([\d.-]+)/g)].map((m) => [+m[1], +m[2]]),
  }));
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    if (at < left || at > left + width) return leave();
    const rows = [value(x, (at - left) / width).toLocaleString()];
    for (const { name, points } of lines) {
      if (!points.length) continue;
      const near = points.reduce((a, b) => (Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a));
      rows.push(value(y, (top + height - near[1]) / height) + "  " + name);
    }
    tip.textContent = rows.join("\n");
    tip.style.display = "block";
    const right = at > left + width / 2;
    tip.style.left = right ? "" : event.clientX - box.left + 14 + "px";
    tip.style.right = right ? box.right - event.clientX + 14 + "px" : "";
    tip.style.top = box.top - figure.getBoundingClientRect().top + 16 + "px";
    cross.setAttribute("x1", at);
    cross.setAttribute("x2", at);
    cross.style.visibility = "visible";
  });
  const leave = () => {
    tip.style.display = "none";
    cross.style.visibility = "hidden";
  };
  svg.addEventListener("pointerleave", leave);
}
