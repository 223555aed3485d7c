// What a browser makes of a desk: every page in light and dark, on a phone and on a desk; forms without a script.
// Its one argument is JSON, and so is its last line.
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const told = JSON.parse(process.argv[2]);
const { site, requests = {} } = told;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const profile = () => mkdtempSync(join(import.meta.dirname, "profile-"));
const options = {
  executablePath: told.chromium,
  headless: true,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
};
const opened = (more = {}) => chromium.launchPersistentContext(profile(), { ...options, ...more });
const found = { pages: 0, violations: [], overflows: [], complaints: [], broken: [] };

async function signIn(context, token) {
  const page = await context.newPage();
  await page.goto(`${site}/login`);
  await page.fill("#token", token);
  await page.click("button");
  await page.waitForURL(`${site}/`);
  return page;
}

function expect(holds, what) {
  if (!holds) found.broken.push(what);
}

async function examine(page, name) {
  found.pages += 1;
  const wide = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  if (wide[0] > wide[1]) found.overflows.push(`${name}: ${wide[0]} in ${wide[1]}`);
  await page.screenshot({ path: join(told.pictures, `${name}.png`), fullPage: true });
  await page.evaluate(axe);
  const said = await page.evaluate(() => axe.run());
  for (const each of said.violations)
    found.violations.push(`${name}: ${each.impact} ${each.id}: ${each.nodes[0].html.slice(0, 160)}`);
}

// Name, whose page it is, and how to come there.
const go = (path) => (page) => page.goto(site + path);
const PAGES = [
  ["sign-in", null, go("/login")],
  ["sign-in-failed", null, async (page) => {
    await page.goto(`${site}/login`);
    await page.fill("#token", "of nobody");
    await page.click("button");
  }],
  ["leaver", null, go("/leaver")],
  ["leaver-found", null, async (page) => {
    await page.goto(`${site}/leaver`);
    await page.fill("#receipt", told.receipt);
    await page.click("text=Look it up");
    await page.waitForSelector("text=Fetch the certificate");
  }],
  ["leaver-unknown", null, async (page) => {
    await page.goto(`${site}/leaver`);
    await page.fill("#receipt", "{}");
    await page.click("text=Look it up");
  }],
  ["overview-operate", "operate", go("/")],
  ["overview-unfolded", "operate", async (page) => {
    await page.goto(`${site}/`);
    for (const each of await page.$$("summary")) await each.click();
  }],
  ["overview-approve", "approve", go("/")],
  ["request-waiting-approve", "approve", go(`/requests/${requests.waiting}`)],
  ["request-waiting-operate", "operate", go(`/requests/${requests.waiting}`)],
  ["request-open-approve", "approve", go(`/requests/${requests.open}`)],
  ["request-served", "operate", go(`/requests/${requests.served}`)],
  ["request-missing", "operate", go("/requests/999")],
];
const SIZES = { phone: { width: 390, height: 844 }, desktop: { width: 1280, height: 900 } };

async function lookAtAll() {
  for (const [size, viewport] of Object.entries(SIZES))
    for (const colorScheme of ["light", "dark"])
      for (const who of [null, "operate", "approve"]) {
        const context = await opened({ viewport, colorScheme });
        if (who) await (await signIn(context, told[who])).close();
        for (const [name, whose, come] of PAGES) {
          if (whose !== who) continue;
          const page = await context.newPage();
          // What its own policy forbids a page is said on its console.
          page.on("console", (message) => {
            const expected = /status of 40[34]/.test(message.text());
            if (message.type() === "error" && !expected) found.complaints.push(`${name}: ${message.text()}`);
          });
          page.on("pageerror", (error) => found.complaints.push(`${name}: ${error}`));
          await come(page);
          await examine(page, `${name}-${size}-${colorScheme}`);
          await page.close();
        }
        await context.close();
      }
}

// A page with a fault, so that it is known that faults are found.
async function catchFault() {
  const context = await opened({ viewport: SIZES.phone });
  const page = await context.newPage();
  await page.goto(`${site}/login`);
  const before = { pages: found.pages, violations: [...found.violations], overflows: [...found.overflows] };
  await page.evaluate(() => {
    document.querySelector("label").remove();
    document.querySelector("main").append(Object.assign(document.createElement("pre"), { textContent: "x".repeat(500) }));
    document.querySelector("pre").style.whiteSpace = "pre";
  });
  await examine(page, "faulty");
  const caught = found.violations.length > before.violations.length && found.overflows.length > before.overflows.length;
  Object.assign(found, before, { fault_caught: Number(caught) });
  await context.close();
}

// With a script the overview is new every 15 seconds, and leaves what is unfolded, and where the keyboard is. Once it
// cannot be new any more it says so.
async function waitForFresh() {
  const context = await opened({ viewport: SIZES.desktop });
  const page = await signIn(context, told.operate);
  const asked = (number, what, form) =>
    page.request.post(`${site}/requests/${number}/${what}`, { form, headers: { origin: site } });
  const row = page.locator(`tr:has(a[href="/requests/${requests.open}"])`);
  const [due, closed] = [await row.innerText(), await page.locator("summary").innerText()];
  await page.click("summary");
  await page.focus("main table a");
  await page.evaluate(() => { document.querySelector("main").dataset.old = "1"; });
  await asked(requests.open, "extend", { days: 3, reason: "many at once" });
  await asked(requests.unnamed, "withdraw", { reason: "" });
  await page.waitForFunction(() => !document.querySelector("main").dataset.old, null, { timeout: 60000 });
  expect(await page.locator("details[open]").count() === 1, "a refresh folds up what was unfolded");
  expect(await row.innerText() !== due, "a refresh does not show a new deadline");
  expect(await page.locator("summary").innerText() !== closed, "a refresh does not show what was closed");
  expect(await page.locator("main table a:focus").count() === 1, "a refresh takes the focus away");
  await context.route(`${site}/`, (route) => route.abort());
  await page.waitForSelector("#stale", { timeout: 60000 })
    .catch(() => expect(false, "a page whose desk is gone looks as if it were new"));
  await context.unroute(`${site}/`);
  await page.waitForSelector("#stale", { state: "hidden", timeout: 60000 });
  await page.request.post(`${site}/logout`, { headers: { origin: site } });
  await page.waitForURL(`${site}/login`, { timeout: 60000 })
    .catch(() => expect(false, "a page whose session has ended looks as if it were new"));
  await context.close();
}

// Without a script: sign in, approve with a key, extend, sign out, and fetch a certificate by its receipt.
async function useForms() {
  const context = await opened({ viewport: SIZES.phone, javaScriptEnabled: false });
  let page = await signIn(context, told.approve);
  expect(await page.locator("noscript meta[http-equiv=refresh]").count() === 1, "without a script nothing refreshes");
  await page.click(`a[href="/requests/${requests.waiting}"] >> nth=0`);
  const folder = profile();
  const [saved] = await Promise.all([page.waitForEvent("download"), page.click("text=approval.json >> nth=0")]);
  await saved.saveAs(join(folder, "approval.json"));
  const words = ["key", "approve", join(folder, "approval.json"), "--key", told.key, "--yes"];
  await page.fill("#signed", execFileSync(told.rescind, words).toString().trim().split("\n").at(-1));
  await page.click("text=Approve, signed");
  await page.waitForSelector("text=approved by T. Approve, signed with a key");
  await page.click("text=Sign out");
  await page.waitForURL(`${site}/login`);
  page = await signIn(context, told.operate);
  await page.goto(`${site}/requests/${requests.overdue}`);
  await page.goto(`${site}/requests/${requests.waiting}`);
  await page.fill("#days", "5");
  await page.fill("#why-extend", "a holiday");
  await page.click("button:text('Extend')");
  await page.waitForSelector("text=a holiday");
  await page.goto(`${site}/leaver`);
  await page.fill("#receipt", told.receipt);
  await page.click("text=Look it up");
  const [certificate] = await Promise.all([
    page.waitForEvent("download"), page.click("text=Fetch the certificate"),
  ]);
  await certificate.saveAs(join(folder, "certificate.json"));
  expect(readFileSync(join(folder, "certificate.json")).length > 1000, "the certificate is no certificate");
  await context.close();
}

// How long the overview takes, from the first byte asked for to the page with all that it needs.
async function time() {
  const context = await opened({ viewport: SIZES.desktop });
  const page = await signIn(context, told.token);
  const taken = [];
  for (let at = 0; at < 10; at += 1) {
    await page.goto(`${site}/`, { waitUntil: "load" });
    taken.push(await page.evaluate(() => performance.getEntriesByType("navigation")[0].duration / 1000));
  }
  await context.close();
  return taken;
}

if (told.only === "time") {
  console.log(JSON.stringify(await time()));
  process.exit();
}
mkdirSync(told.pictures, { recursive: true });
await lookAtAll();
await catchFault();
for (const [what, step] of Object.entries({ "with a script": waitForFresh, "without a script": useForms }))
  await step().catch((error) => found.broken.push(`${what}: ${error}`));
console.log(JSON.stringify(found));
