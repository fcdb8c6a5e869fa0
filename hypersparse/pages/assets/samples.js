// Sample images, drawn for these pages: pictures of 32 by 32 units, and digits as strokes of a pen.

const back = (top, bottom) =>
  `<defs><linearGradient id='b' x2='0' y2='1'><stop stop-color='${top}'/><stop offset='1' stop-color='${bottom}'/></linearGradient></defs><rect width='32' height='32' fill='url(#b)'/>`;
const path = (color, shape) => `<path fill='${color}' d='${shape}'/>`;
const oval = (color, x, y, rx, ry = rx) => `<ellipse fill='${color}' cx='${x}' cy='${y}' rx='${rx}' ry='${ry}'/>`;
const wheel = (x, y, r) => oval("#15161a", x, y, r) + oval("#9a9ca3", x, y, r / 2.2);

const PICTURES = {
  airplane: [
    back("#6fa5dc", "#cfe2f3"),
    path("#b9c0c8", "M14 16 22 25 25 25 21 16zM14 14 20 8 22.5 8 20 14z"),
    path("#f4f6f8", "M2 15.5Q4 13 9 13L25 13 29 8 31 8 29.5 15Q29 17 25 17.2L8 17.4Q3 17.4 2 15.5z"),
    path("#3d6ea5", "M25 13 29 8 31 8 29.7 14z"),
    path("#4a5663", "M4 14.6 6 13.8 6.6 14.8z"),
  ],
  automobile: [
    back("#a9bccb", "#d8d5cc"),
    path("#6f7276", "M0 22H32V32H0z"),
    path(
      "#c4161c",
      "M1.5 23V19.5Q2 17.3 6 16.8L10 12.2Q11 11.2 13 11.2H20Q22 11.2 23.3 12.6L26.5 16.6Q30 17 30.5 19.5V23z",
    ),
    path("#22303d", "M8.5 16.7 11.3 13.2Q11.8 12.7 13 12.7H15.5V16.7zM17 12.7H20Q21.3 12.8 22.2 13.8L24.4 16.7H17z"),
    wheel(8, 23, 3.2) + wheel(24, 23, 3.2),
  ],
  ship: [
    back("#9cc3e6", "#dce9f2"),
    path("#2f6592", "M0 21Q4 20 8 21T16 21 24 21 32 21V32H0z"),
    path("#f5f5f2", "M8 18V13H12V10H21V13H25V18z"),
    path("#c9452e", "M14.5 10V6.5H18V10z"),
    path("#26323f", "M2 17H30Q29 22.5 26.5 24H6.5Q3.5 22 2 17z"),
    path("#a7322a", "M5 22.4H27.8L26.5 24H6.5z"),
    path("#3c5871", "M10 14.5H23V15.8H10z"),
  ],
  truck: [
    back("#a8c6de", "#dfe3e2"),
    path("#75777a", "M0 24H32V32H0z"),
    path("#f3f3ef", "M1.5 7H20.5V22H1.5z"),
    path("#d9d9d3", "M1.5 19.5H20.5V22H1.5z"),
    path("#d7261e", "M21 12H26.5L30 17V23H21z"),
    path("#26394a", "M23 13.5H25.8L28.3 17.2H23z"),
    path("#33363a", "M1.5 22H30.5V24H1.5z"),
    wheel(6.5, 24.5, 2.7) + wheel(12.5, 24.5, 2.7) + wheel(26, 24.5, 2.7),
  ],
  bird: [
    back("#8fb66a", "#6b8f4c"),
    path("#6b4a2f", "M0 25 32 22V24L0 27z"),
    path("#7d6f63", "M9 13Q12 8 16 10 22 13 24 20L31 26 27 26 22 23Q14 24 11 19 9 16 9 13z"),
    path("#d9a066", "M11 16Q12 22 17 23 21 22 20 20 15 19 13 14z"),
    oval("#6a5d52", 11, 11, 4),
    path("#e3a935", "M7.5 10.5 3.5 12 7.5 12.6z"),
    oval("#111", 10, 10.3, 0.8),
    path("#4a4038", "M15 14Q21 16 25 22L19 20Q16 18 15 14z"),
  ],
  frog: [
    back("#8a7a5a", "#5f5138"),
    path("#3f7d2b", "M3 25Q3 17 10 14L12 9Q14 6 16.5 8.5 19 6 21.5 9L23 14Q29 17 29 25 24 28 16 28 8 28 3 25z"),
    path("#c9d98b", "M9 21Q16 26 23 21 23 27 16 27.5 9 27 9 21z"),
    path("#346a23", "M3 25Q1 22 3.5 19 8 20 9 26zM29 25Q31 22 28.5 19 24 20 23 26z"),
    oval("#e6d25a", 12.7, 10, 2) + oval("#e6d25a", 20.3, 10, 2) + oval("#111", 12.7, 10, 1) + oval("#111", 20.3, 10, 1),
    path("#2a5a1c", "M10 16.5Q16 20 23 16.5 16 21.5 10 16.5z"),
  ],
  horse: [
    back("#bcd3e4", "#7fa654"),
    path("#5f8f3c", "M0 24H32V32H0z"),
    path(
      "#6d4023",
      "M8 14Q14 12.5 20 13.5L24 8 24.5 5 26.5 6.5Q30 9 30 11.5L28 12.5 26 12 24 17Q24 19 22.5 20V28H20.8L20.3 21H13L12 28H10.2L9.8 20Q7 18 8 14z",
    ),
    path("#3a2012", "M8 14Q4 15 4.5 22 7 20 8.5 17zM20 13.5 24 8 24.5 5 23 6.5Q20 9 18.5 13.3z"),
    path("#573119", "M11 20H13.5L12.8 28H11.4zM21.5 20H23.5L24.5 28H22.8z"),
  ],
  cat: [
    back("#b9aa97", "#d9cfc1"),
    path("#6b665f", "M6 4 12 9Q16 8 20 9L26 4 26.5 16Q26 25 16 26.5 6 25 5.5 16z"),
    path("#c9a59b", "M7.5 7 10.5 10 8 13zM24.5 7 21.5 10 24 13z"),
    path("#d8d3ca", "M11 20Q16 17 21 20 20 25.5 16 25.7 12 25.5 11 20z"),
    oval("#c7d35f", 11.5, 15.5, 2.1) +
      oval("#c7d35f", 20.5, 15.5, 2.1) +
      oval("#111", 11.5, 15.5, 0.9, 1.8) +
      oval("#111", 20.5, 15.5, 0.9, 1.8),
    path("#b56b6b", "M14.8 19.3H17.2L16 20.8z"),
    path("#45413b", "M15 9.5H17L16.5 13H15.5zM11.8 10.4 13.4 10 14 12.6zM18.6 10 20.2 10.4 18 12.6z"),
    path("#5c5851", "M8 26Q16 30 24 26L27 32H5z"),
  ],
  deer: [
    back("#7f9a5a", "#5d7a3e"),
    path(
      "#8f6237",
      "M8 15Q14 13 20 14.5L23 10 22.5 8 26 9.5 29 12 26.5 13 24.5 17Q24 19 22.5 20L23 28H21.6L20.4 20.5H13L12 28H10.6L10.2 20Q7.5 18 8 15z",
    ),
    path("#e8dcc6", "M8 15 6.5 17 8.6 18.5z"),
    path(
      "#5a3d22",
      "M23 9Q20 6 21 2L22 5Q22.5 3.5 22 1.5 24 4 23.7 6.5L24.2 9zM24.5 9Q26 6 25 2.5 27.5 5 26.5 7.5L28.5 5.5Q28 8 25.5 9.5z",
    ),
  ],
  dog: [
    back("#9db48b", "#c4b596"),
    path("#c28a4e", "M10 7Q16 4.5 22 7L24 14Q24 22 16 24 8 22 8 14z"),
    path("#7a4c22", "M10 7Q5 7 4.5 13 5 18 7.5 18.5 9.5 15 10 7zM22 7Q27 7 27.5 13 27 18 24.5 18.5 22.5 15 22 7z"),
    path("#efe2cf", "M14.5 6H17.5L18 14Q21 16 20.5 20 19 23 16 23.3 13 23 11.5 20 11 16 14 14z"),
    oval("#1b130c", 12.3, 12.8, 1.4) + oval("#1b130c", 19.7, 12.8, 1.4) + oval("#1b130c", 16, 17.2, 2, 1.4),
    path("#c96b70", "M14.8 20.5H17.2V23Q16 24.5 14.8 23z"),
    path("#b27c43", "M8 24Q16 28 24 24L27 32H5z"),
  ],
  apple: [
    back("#fdfdfd", "#e9e9e9"),
    path(
      "#c3202a",
      "M16 9Q21 5.5 25.5 9 29.5 14 26.5 21 23 28.5 18.5 28 16 27.2 13.5 28 9 28.5 5.5 21 2.5 14 6.5 9 11 5.5 16 9z",
    ),
    path("#e4565a", "M8.5 12Q7 16 9 20 7 18 6.8 15.5 6.8 13 8.5 12z"),
    path("#5b3a1e", "M15.4 10Q15 6 17.5 3L18.8 3.6Q16.6 6.5 16.8 10z"),
    path("#4f8f3a", "M17.5 6Q21 2.5 25 4.5 22.5 8 17.5 6z"),
  ],
  orange: [
    back("#fdfdfd", "#ececec"),
    oval("#d9d9d9", 16, 27.5, 9, 1.8),
    oval("#f08a12", 16, 16.5, 11.5),
    oval("#f7a63c", 12.5, 12.5, 5.5, 4.5),
    path("#4f7a2c", "M14.5 6.5 16 5 17.5 6.5 16 8z"),
  ],
  sunflower: [
    back("#7db4e0", "#a9cfe8"),
    path("#3d7a2e", "M15 16H17V32H15zM17 26Q22 20 27 22 25 28 17 28z"),
    [0, 30, 60, 90, 120, 150]
      .map(
        (turn) =>
          `<g transform='rotate(${turn} 16 13)'>${path("#f5c211", "M16 0.5Q19.5 7 16 13 12.5 7 16 0.5zM16 25.5Q19.5 19 16 13 12.5 19 16 25.5z")}</g>`,
      )
      .join(""),
    oval("#5a3413", 16, 13, 5.6) + oval("#3c210b", 16, 13, 3.4),
  ],
  rocket: [
    back("#4b7fc0", "#a8c9e8"),
    path("#f6d36b", "M13.5 24H18.5L17.5 31 16 28.5 14.5 31z"),
    path("#eceef0", "M16 1.5Q20.5 7 20.5 14V24H11.5V14Q11.5 7 16 1.5z"),
    path(
      "#c22a2a",
      "M11.5 17 7.5 23V26.5L11.5 24zM20.5 17 24.5 23V26.5L20.5 24zM16 1.5Q18.6 4.6 19.6 8H12.4Q13.4 4.6 16 1.5z",
    ),
    oval("#30506f", 16, 12.5, 2.2),
  ],
};

// Points in the unit square, one stroke for each digit.
// prettier-ignore
const DIGITS = {
  2: [[0.3, 0.3], [0.36, 0.19], [0.5, 0.14], [0.63, 0.2], [0.68, 0.33], [0.6, 0.48], [0.45, 0.66], [0.3, 0.84], [0.72, 0.84]],
  3: [[0.32, 0.2], [0.48, 0.13], [0.64, 0.2], [0.66, 0.34], [0.58, 0.44], [0.46, 0.48], [0.6, 0.52], [0.69, 0.64], [0.65, 0.8], [0.5, 0.88], [0.31, 0.82]],
  5: [[0.68, 0.15], [0.36, 0.15], [0.33, 0.46], [0.5, 0.4], [0.65, 0.48], [0.7, 0.64], [0.64, 0.8], [0.48, 0.88], [0.3, 0.81]],
  8: [[0.6, 0.28], [0.5, 0.15], [0.38, 0.22], [0.38, 0.36], [0.5, 0.46], [0.65, 0.6], [0.64, 0.78], [0.5, 0.87], [0.36, 0.78], [0.36, 0.6], [0.5, 0.47], [0.62, 0.36], [0.6, 0.28]],
};

/** Samples for a network with these classes: those with their names if there are any, else all. */
function samplesFor(classes, draws) {
  const all = draws ? DIGITS : PICTURES;
  const named = Object.keys(all).filter((name) => classes.includes(name));
  return (named.length ? named : Object.keys(all)).map((name) => ({
    name,
    strokes: draws ? all[name] : null,
    source: sourceOf(name, draws),
  }));
}

/** A sample as the data URL of an SVG image. */
function sourceOf(name, draws) {
  const stroke = (points) =>
    `<rect width='32' height='32' fill='#fff'/><path d='M${points.map(([x, y]) => `${32 * x} ${32 * y}`).join("L")}' fill='none' stroke='#000' stroke-width='2.2' stroke-linecap='round' stroke-linejoin='round'/>`;
  const content = draws ? stroke(DIGITS[name]) : PICTURES[name].join("");
  const size = "width='256' height='256' viewBox='0 0 32 32'";
  return `data:image/svg+xml,${encodeURIComponent(`<svg xmlns='http://www.w3.org/2000/svg' ${size}>${content}</svg>`)}`;
}

/** A picture as a PNG file. */
async function fileOf(sample) {
  const picture = new Image();
  picture.src = sample.source;
  await picture.decode();
  const canvas = el("canvas", { width: 256, height: 256 });
  canvas.getContext("2d").drawImage(picture, 0, 0, 256, 256);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

/** Buttons of samples; `chosen` gets the one that was clicked. */
function samplesRow(samples, chosen) {
  const buttons = samples.map((sample) => {
    const words = spoken(sample.name);
    const look = el("img", { src: sample.source, alt: "", width: 44, height: 44 });
    return button(
      { class: "sample", title: words, "aria-label": `Sample: ${words}`, onclick: () => chosen(sample) },
      look,
    );
  });
  return el("div", { class: "samples", role: "group", "aria-label": "Sample images" }, buttons);
}
