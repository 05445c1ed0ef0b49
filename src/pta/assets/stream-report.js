// Pointing at the curves shows all accuracies there. Without scripts the page only loses this.
for (const curve of document.querySelectorAll(".curve")) {
  const [at, ...lines] = JSON.parse(curve.dataset.values);
  const drawing = curve.querySelector(".drawing");
  const cursor = curve.querySelector(".cursor");
  const texts = [...curve.parentElement.querySelectorAll(".legend b, .where")];
  const final = texts.map((text) => text.textContent);

  const show = (event) => {
    const box = drawing.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const wanted = at[0] + share * (at[at.length - 1] - at[0]);
    let i = at.findIndex((position) => position >= wanted);
    if (i < 0) i = at.length - 1;
    const lead = lines[1][i] - lines[0][i];
    const said = `after ${at[i].toLocaleString("en")} ${curve.dataset.things}: ${lead < 0 ? "−" : "+"}${Math.abs(lead).toFixed(2)} points`;
    const values = [...lines.map((line) => line[i].toFixed(2) + " %"), said];
    texts.forEach((text, k) => { text.textContent = values[k]; });
    cursor.style.left = share * 100 + "%";
    cursor.hidden = false;
  };
  const hide = () => {
    cursor.hidden = true;
    texts.forEach((text, k) => { text.textContent = final[k]; });
  };
  drawing.addEventListener("pointermove", show);
  drawing.addEventListener("pointerdown", show);
  drawing.addEventListener("pointerleave", hide);
}
