// Open pages in Chromium and print as JSON, by page, what a reader would notice.
const {chromium} = require("playwright-core");
const axe = require("fs").readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const isMany = (url) => url.endsWith("/many.html");

const violations = async (page, how) => {
  const found = await page.evaluate(() => window.axe.run());
  return found.violations.map((one) => `${how} ${one.id}: ${one.nodes[0].html}`);
};

const watched = async (browser, options, out) => {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.on("console", (message) => message.type() === "error" && out.errors.push(message.text()));
  page.on("pageerror", (error) => out.errors.push(String(error)));
  page.on("request", (request) => out.requests.push(request.url()));
  return page;
};

// Seconds until the page is drawn, and the seconds that its thread used a processor.
const timed = async (page, url) => {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", {timeDomain: "threadTicks"});
  const began = performance.now();
  await page.goto(url);
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn))));
  const wall = (performance.now() - began) / 1000;
  const {metrics} = await session.send("Performance.getMetrics");
  return {wall, cpu: metrics.find((one) => one.name === "TaskDuration").value};
};

const loaded = async (browser, url, out) => {
  const page = await watched(browser, {}, out);
  const took = await timed(page, url);
  await page.context().close();
  return took;
};

const scripted = async (browser, url, colorScheme, out) => {
  const page = await watched(browser, {colorScheme}, out);
  await page.goto(url);
  await page.evaluate(axe);
  out.violations.push(...(await violations(page, colorScheme)));
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
  await page.context().close();
};

// Whether every object is printed, and nothing that only a screen can use.
const printed = async (browser, url, javaScriptEnabled, out) => {
  const page = await watched(browser, {colorScheme: "dark", javaScriptEnabled, viewport: {width: 720, height: 1000}}, out);
  await page.goto(url);
  await page.emulateMedia({media: "print"});
  const items = page.locator(".items > li");
  const ends = (await items.count()) ? [items.first(), items.last()] : [];
  const boxes = await Promise.all(ends.map((item) => item.boundingBox()));
  const paper = await page.locator("body").evaluate((body) => getComputedStyle(body).backgroundColor);
  const pdf = await page.pdf({format: "A4"});
  out.print.push({
    hidden: boxes.filter((box) => !box || box.height === 0).length,
    form: await page.locator("form").isVisible(),
    paper,
    pdf: pdf.length,
  });
  await page.context().close();
};

const unscripted = async (browser, url, out) => {
  const page = await watched(browser, {javaScriptEnabled: false}, out);
  await page.goto(url);
  out.plain = {form: await page.locator("form").isVisible(), text: await page.locator("body").innerText()};
  await page.context().close();
};

const visited = async (browser, url, out) => {
  const many = isMany(url); // axe looks at each of 10,000 names
  for (const colorScheme of many ? ["light"] : ["light", "dark"]) await scripted(browser, url, colorScheme, out);
  await unscripted(browser, url, out);
  for (const enabled of many ? [true] : [true, false]) await printed(browser, url, enabled, out);
};

// The large page is timed alone; then it takes as long as all others, which are visited beside it.
(async () => {
  const browser = await chromium.launch({executablePath: process.env.CHROMIUM, args: ["--no-sandbox"]});
  const urls = process.argv.slice(2);
  const all = Object.fromEntries(urls.map((url) => [url, {errors: [], requests: [], violations: [], times: [], print: []}]));
  for (const url of urls.filter(isMany)) for (let run = 0; run < 3; run++) all[url].times.push(await loaded(browser, url, all[url]));
  const lanes = [urls.filter(isMany), urls.filter((url) => !isMany(url))];
  await Promise.all(lanes.map(async (lane) => { for (const url of lane) await visited(browser, url, all[url]); }));
  console.log(JSON.stringify(all));
  await browser.close();
})();
