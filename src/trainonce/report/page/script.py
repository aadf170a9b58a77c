"""The script of the interactive page: Plotly figures in the page's colours replace the still ones, except in print."""

SCRIPT = """
(function () {
  const ink = () => getComputedStyle(document.body).color;
  const colours = () => ({"font.color": ink(), "xaxis.gridcolor": "rgba(128,128,128,0.25)",
    "yaxis.gridcolor": "rgba(128,128,128,0.25)", "xaxis.color": ink(), "yaxis.color": ink()});
  const recolour = (json) => JSON.parse(json.replaceAll('"#010203"', JSON.stringify(ink())));
  const redraw = [];
  for (const figure of document.querySelectorAll("figure")) {
    const plot = figure.querySelector(".plot"), data = figure.querySelector("script");
    if (!plot) continue;
    figure.classList.add("ready");
    const draw = () => {
      const content = recolour(data.textContent);
      return Plotly.react(plot, content.data, content.layout, {responsive: true, displaylogo: false,
        displayModeBar: false, typesetMath: false}).then(() => Plotly.relayout(plot, colours()));
    };
    draw(); redraw.push(draw);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw.forEach((draw) => draw()));
})();
"""
