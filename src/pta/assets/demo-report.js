// Pointing at the curve shows both accuracies there. Without scripts the page only loses this.
for (const curve of document.querySelectorAll(".curve")) {
  const { at, zeroShot, pta } = JSON.parse(curve.dataset.values);
  const drawing = curve.querySelector(".drawing");
  const cursor = curve.querySelector(".cursor");
  const legend = curve.parentElement.querySelector(".legend");
  const texts = [".zero-shot b", ".pta b", ".where"].map((name) => legend.querySelector(name));
  const final = texts.map((text) => text.textContent);

  const show = (event) => {
    const box = drawing.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const wanted = at[0] + share * (at[at.length - 1] - at[0]);
    let i = at.findIndex((position) => position >= wanted);
    if (i < 0) i = at.length - 1;
    const lead = pta[i] - zeroShot[i];
    const sign = lead < 0 ? "−" : "+";
    texts[0].textContent = zeroShot[i].toFixed(2) + " %";
    texts[1].textContent = pta[i].toFixed(2) + " %";
    texts[2].textContent = `after ${at[i].toLocaleString("en")} ${curve.dataset.things}: ${sign}${Math.abs(lead).toFixed(2)} points`;
    cursor.style.left = share * 100 + "%";
    cursor.hidden = false;
  };
  const hide = () => {
    cursor.hidden = true;
    texts.forEach((text, i) => { text.textContent = final[i]; });
  };
  drawing.addEventListener("pointermove", show);
  drawing.addEventListener("pointerdown", show);
  drawing.addEventListener("pointerleave", hide);
}
