// Open a page in Chromium and print as JSON what a reader would notice.
const {chromium} = require("playwright-core");
const axe = require("fs").readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
(async () => {
  const browser = await chromium.launch({executablePath: process.env.CHROMIUM, args: ["--no-sandbox"]});
  const out = {errors: [], requests: [], violations: []};
  for (const colorScheme of ["light", "dark"]) {
    const page = await browser.newPage({colorScheme});
    page.on("console", (message) => message.type() === "error" && out.errors.push(message.text()));
    page.on("pageerror", (error) => out.errors.push(String(error)));
    page.on("request", (request) => out.requests.push(request.url()));
    await page.goto(process.argv[2]);
    await page.evaluate(axe);
    const found = await page.evaluate(() => window.axe.run());
    out.violations.push(...found.violations.map((one) => `${colorScheme} ${one.id}: ${one.nodes[0].html}`));
    const head = page.locator("table.sortable thead button").first();
    await head.focus();
    await page.keyboard.press("Enter");
    out.sorted = await page.locator("th[aria-sort=ascending]").count();
    const rows = page.locator("table.causes tbody tr:visible");
    out.before = await rows.count();
    await page.locator("#words").fill("no row has this text");
    await page.waitForTimeout(300);
    out.after = await rows.count();
    await page.close();
  }
  console.log(JSON.stringify(out));
  await browser.close();
})();
