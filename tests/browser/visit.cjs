// Open pages in Chromium and print as JSON, by page, what a reader would notice.
const {chromium} = require("playwright-core");
const axe = require("fs").readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const SCREEN = {width: 1280, height: 720};
const isMany = (url) => url.endsWith("/many.html");

const violations = async (page, how) => {
  const found = await page.evaluate(() => window.axe.run());
  return found.violations.map((one) => `${how} ${one.id}: ${one.nodes[0].html}`);
};

// A tab that notes errors and requests in what `out()` returns.
const tab = async (browser, options, out) => {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.on("console", (message) => message.type() === "error" && out().errors.push(message.text()));
  page.on("pageerror", (error) => out().errors.push(String(error)));
  page.on("request", (request) => out().requests.push(request.url()));
  return page;
};

// A session that counts the seconds for which the thread of the page uses a processor.
const clock = async (page) => {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", {timeDomain: "threadTicks"});
  return session;
};

const used = async (session) => (await session.send("Performance.getMetrics")).metrics.find((one) => one.name === "TaskDuration").value;

// Seconds until the page is drawn, and those of its thread.
const timed = async (page, url) => {
  const session = await clock(page);
  const began = performance.now();
  await page.goto(url);
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn))));
  const wall = (performance.now() - began) / 1000;
  return {wall, cpu: await used(session)};
};

const loaded = async (browser, url, out) => {
  const page = await tab(browser, {}, () => out);
  const took = await timed(page, url);
  await page.context().close();
  return took;
};

const scripted = async (page, url, colorSchemes, out) => {
  await page.setViewportSize(SCREEN);
  await page.emulateMedia({media: "screen"});
  await page.goto(url);
  await page.evaluate(axe);
  for (const colorScheme of colorSchemes) {
    await page.emulateMedia({colorScheme});
    out.violations.push(...(await violations(page, colorScheme)));
  }
  await page.keyboard.press("Tab");
  out.first_focus = await page.evaluate(() => document.activeElement.getAttribute("href"));
  const head = page.locator("table.sortable thead button").first();
  await head.focus();
  await page.keyboard.press("Enter");
  out.sorted = await page.locator("th[aria-sort=ascending]").count();
  const summary = page.locator("summary").first();
  if (await summary.count()) {
    await summary.focus();
    await page.keyboard.press("Enter");
    out.opened = await page.locator("details[open]").count();
  }
  const rows = page.locator("table.causes tbody tr:visible");
  out.before = await rows.count();
  if (await page.locator("#words").isVisible()) {
    await page.locator("#words").fill("no row has this text");
    await page.waitForFunction(() => document.getElementById("found").textContent.startsWith("0 "));
    out.after = await rows.count();
  }
  out.overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
};

// Whether every object is printed, and nothing that only a screen can use.
const printed = async (page, url, out) => {
  await page.setViewportSize({width: 720, height: 1000});
  await page.emulateMedia({media: "print", colorScheme: "dark"});
  await page.goto(url);
  const items = page.locator(".items > li");
  const ends = (await items.count()) ? [items.first(), items.last()] : [];
  const boxes = await Promise.all(ends.map((item) => item.boundingBox()));
  const paper = await page.locator("body").evaluate((body) => getComputedStyle(body).backgroundColor);
  const session = await clock(page);
  const before = await used(session);
  const pdf = await page.pdf({format: "A4"});
  out.print.push({
    hidden: boxes.filter((box) => !box || box.height === 0).length,
    form: await page.locator("form").isVisible(),
    paper,
    pdf: pdf.length,
    cpu: (await used(session)) - before,
  });
  await session.detach(); // it would keep the tab from showing another medium
};

const unscripted = async (page, url, out) => {
  await page.setViewportSize(SCREEN);
  await page.emulateMedia({media: "screen", colorScheme: "light"});
  await page.goto(url);
  out.plain = {form: await page.locator("form").isVisible(), text: await page.locator("body").innerText()};
};

// One after the other in two tabs: a tab for each look would be a process for each.
const visited = async (browser, urls, all) => {
  let out;
  const [active, plain] = await Promise.all([true, false].map((javaScriptEnabled) => tab(browser, {javaScriptEnabled}, () => out)));
  for (const url of urls) {
    out = all[url];
    const many = isMany(url); // axe looks at each of 10,000 names
    await scripted(active, url, many ? ["light"] : ["light", "dark"], out);
    await printed(active, url, out);
    await unscripted(plain, url, out);
    if (!many) await printed(plain, url, out);
  }
};

// The large page is timed alone; then it takes as long as all others, which are visited beside it.
(async () => {
  const browser = await chromium.launch({executablePath: process.env.CHROMIUM, args: ["--no-sandbox"]});
  const urls = process.argv.slice(2);
  const all = Object.fromEntries(urls.map((url) => [url, {errors: [], requests: [], violations: [], times: [], print: []}]));
  for (const url of urls.filter(isMany)) for (let run = 0; run < 3; run++) all[url].times.push(await loaded(browser, url, all[url]));
  const lanes = [urls.filter(isMany), urls.filter((url) => !isMany(url))];
  await Promise.all(lanes.map((lane) => visited(browser, lane, all)));
  console.log(JSON.stringify(all));
  await browser.close();
})();
