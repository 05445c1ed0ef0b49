{
  const tables = JSON.parse(document.getElementById("leaderboard-data").textContent);
  const table = document.getElementById("leaderboard-table"), heads = [...table.tHead.rows[0].cells];
  const [stream, file] = ["stream", "file"].map((name) => document.getElementById(`leaderboard-${name}`));
  let column = 1, sign = -1;
  const compared = (one, other) => {
    const [a, b] = [one[column], other[column]];
    if (!a || !b) return !a - !b;
    return sign * (column ? a - b : a.localeCompare(b));
  };
  const show = () => {
    const rows = [...tables[`${stream.value}|${file.value}`]].sort(compared);
    table.tBodies[0].replaceChildren(...rows.map((cells) => {
      const row = document.createElement("tr");
      for (const cell of cells) row.insertCell().textContent = cell;
      return row;
    }));
    heads.forEach((head, at) => {
      head.ariaSort = at === column ? (sign > 0 ? "ascending" : "descending") : "none";
    });
  };
  heads.forEach((head, at) => head.addEventListener("click", () => {
    sign = at === column ? -sign : (at ? -1 : 1);
    column = at;
    show();
  }));
  for (const one of [stream, file]) one.addEventListener("change", show);
  show();
}
