// Write the upper part of a page as a PNG: node picture.cjs PAGE PNG HEIGHT.
const {chromium} = require("playwright-core");

(async () => {
  const [page, file, height] = process.argv.slice(2);
  const browser = await chromium.launch({executablePath: process.env.CHROMIUM, args: ["--no-sandbox"]});
  const context = await browser.newContext({viewport: {width: 1000, height: Number(height)}, colorScheme: "light"});
  const tab = await context.newPage();
  await tab.goto(page);
  await tab.screenshot({path: file});
  await browser.close();
})();
