#!/usr/bin/env python3
"""Uses a report as a person does: presses keys, zooms, filters, prints. Tells as JSON what came of it; whoever runs this judges.

    browser.py use CHROMIUM PAGE FOLDER         the keys one after the other; the printed page goes to FOLDER/report.pdf
    browser.py open CHROMIUM PAGE [TIMES]       how long until the page is ready, in milliseconds: by the page's own clock, by ours,
                                                and by what its process used of the processor (on a busy machine)
    browser.py many CHROMIUM PAGE               processor time until a page of many tensors is ready, and sums over the rows of its map: maximum, mean
    browser.py picture CHROMIUM PAGE FILE.png FIRST LAST [WIDTH [THEME]]
                                                what lies between the elements that two CSS selectors name, both included

    browser.py fits CHROMIUM PAGE WIDTH...      for each width a line: whether the page is as wide as the window, which drawings are cut, and which
                                                labels lie on others

Chromium is driven over its debugging pipe (the DevTools protocol, messages ended by a zero byte), with nothing but Python's library.
"""
import base64
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time


class Browser:
    def __init__(self, chromium, width=1280, height=1000):
        self.width = width
        to_browser, self.write_to = os.pipe()
        self.read_from, from_browser = os.pipe()
        self.folder = tempfile.TemporaryDirectory()

        def wire():                   # the browser reads from 3 and writes to 4
            ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser, from_browser)]
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run", "--remote-debugging-pipe",
             "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={self.folder.name}", f"--window-size={width},{height}", "about:blank"],
            preexec_fn=wire, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.number, self.buffer, self.session, self.console = 0, b"", None, []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Performance"):
            self.ask(domain + ".enable")

    def receive(self):
        while b"\0" not in self.buffer:
            more = os.read(self.read_from, 1 << 20)
            if not more:
                sys.exit("the browser has gone")
            self.buffer += more
        message, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(message)
        if message.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.console.append(json.dumps(message["params"])[:500])
        return message

    def ask(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def value(self, expression):
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def open(self, path):
        """Milliseconds, by the wall, until the page says that it is ready."""
        began = time.monotonic()
        self.ask("Page.navigate", url="file://" + os.path.abspath(path))
        while not self.ready():
            time.sleep(0.002)
        return (time.monotonic() - began) * 1000

    def ready(self):
        try:
            return self.value("document.documentElement?.dataset.ready")
        except RuntimeError:         # between two documents there is none to ask
            return None

    def processor_ms(self):
        """What the page's process has used of the processor, which does not count the time that others had it."""
        return 1000 * {m["name"]: m["value"] for m in self.ask("Performance.getMetrics")["metrics"]}["ProcessTime"]

    def key(self, key, code=None):
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, text=text if kind == "keyDown" else "",
                     windowsVirtualKeyCode={"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "PageDown": 34}.get(key, ord(key[0].upper())))

    def mouse(self, *points):
        """Presses at the first point, goes through the others and lets go at the last; one point is a click, with a moment's rest before."""
        x, y = points[0]
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.ask("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, button="left", buttons=1, clickCount=1)
        for x, y in points[1:]:
            self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, button="left", buttons=1)
        self.ask("Input.dispatchMouseEvent", type="mouseReleased", x=x, y=y, button="left", clickCount=1)

    def shot(self, **how):
        return base64.b64decode(self.ask("Page.captureScreenshot", **how)["data"])

    def part(self, path, first, last):
        """A picture from the begin of one element to the end of another, with every chart in it drawn."""
        edges = "(a, b) => [document.querySelector(a).getBoundingClientRect().top + scrollY, document.querySelector(b).getBoundingClientRect().bottom + scrollY]"
        ask = f"({edges})({json.dumps(first)}, {json.dumps(last)})"
        top, bottom = self.value(ask)
        self.ask("Emulation.setDeviceMetricsOverride", width=self.width, height=int(bottom - top) + 200, deviceScaleFactor=1, mobile=False)
        self.value(f"scrollTo({{top: {top} - 80, behavior: 'instant'}})")
        settled(self, undrawn(top, bottom), 0)
        time.sleep(1)                # transitions, and charts that fit themselves to the width
        top, bottom = self.value(ask)
        clip = {"x": 0, "y": max(0, top - 16), "width": self.width, "height": bottom - max(0, top - 16) + 16, "scale": 1}
        with open(path, "wb") as file:
            file.write(self.shot(captureBeyondViewport=True, clip=clip))

    def pdf(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.ask("Page.printToPDF")["data"]))

    def close(self):
        self.process.kill()
        self.process.wait()
        try:
            self.folder.cleanup()
        except OSError:              # its other processes may still be leaving
            pass


def undrawn(top, bottom):
    """How many charts between two heights of the page have nothing in them yet, for `settled`."""
    return f"[...document.querySelectorAll('.chart')].filter(c => c.getBoundingClientRect().top + scrollY < {bottom} && c.getBoundingClientRect().bottom + scrollY > {top} && !c.children.length).length"


def settled(browser, expression, wanted):
    """Waits until `expression` is `wanted`, a minute at most, and gives what it is then."""
    for _ in range(600):
        value = browser.value(expression)
        if value == wanted:
            break
        time.sleep(0.1)
    return value


def use(browser, page, folder):
    told = {}
    browser.open(page)
    theme = browser.value("document.documentElement.dataset.theme")
    browser.key("t")
    told["theme_changes"] = browser.value("document.documentElement.dataset.theme") != theme
    browser.key("?")
    told["keys_shown"] = browser.value("document.getElementById('keys').open")
    browser.key("Escape")
    told["keys_hidden"] = settled(browser, "!document.getElementById('keys').open", True)
    browser.key("5")                 # the fifth section comes to the top, under the bar
    told["section_reached"] = settled(browser, "Math.abs(document.getElementById('layers').getBoundingClientRect().top) < 120", True)
    told["section_named"] = settled(browser, "document.querySelector('nav [aria-current]')?.hash", "#layers")
    browser.key("/")
    told["filter_focused"] = browser.value("document.activeElement.className")
    for letter in "weight t":        # letters that are keys elsewhere are text here
        browser.key(letter)
    told["filter_text"] = browser.value("document.activeElement.value")
    browser.value("(filter => { filter.value = 'weight'; filter.dispatchEvent(new Event('input')); })(document.activeElement)")
    told["filtered"] = settled(browser, "document.querySelector('#tensors .count').textContent", "1 of 3 tensors")
    browser.value("document.querySelector('#tensors .in-cell').focus()")
    browser.key("Enter")
    told["zoomed"] = settled(browser, "document.querySelector('#pages input[type=search]').value", "weight")
    told["allocated"] = browser.value("[...document.querySelectorAll('#pages .map-stack:not([hidden])')].map(e => [e.firstChild, ...e.querySelectorAll('li')].map(n => n.textContent).join('\\n')).join()")
    told["zoom_title"] = settled(browser, "document.querySelector('#pages .readout').textContent", "weight, weight, 16.0 KiB")
    browser.value("document.querySelector('#pages input[type=search]').focus()")
    browser.key("Escape")
    told["zoomed_out"] = settled(browser, "document.querySelector('#pages .readout').textContent", "")
    browser.value("document.querySelector('#tensors thead th:nth-child(3) button').focus()")
    browser.key("Enter")             # bytes, largest first, the other way round
    told["sorted"] = browser.value("document.querySelector('#tensors thead th:nth-child(3)').getAttribute('aria-sort')")
    browser.value("document.querySelector('.fall.late-fetch').focus()")
    browser.key("Enter")             # a part of the waterfall opens to its layers, and a layer leads to its row
    told["part_open"] = settled(browser, "document.querySelector('.fall.late-fetch').getAttribute('aria-expanded')", "true")
    browser.value("document.querySelector('.lost .in-cell').focus()")
    browser.key("Enter")
    told["layer_marked"] = settled(browser, "document.querySelector('#layers tr.marked td:nth-child(3)')?.textContent", "backward")
    map_of(browser, told)
    timeline_of(browser, told, page)
    browser.pdf(os.path.join(folder, "report.pdf"))
    told["console"] = browser.console
    return told


def map_of(browser, told):
    """The map of pages: its counts, its rows after a zoom to two pages, and its places."""
    chart = "document.querySelector('#pages .chart')"
    settled(browser, f"!!{chart}.data", True)
    counts = f"JSON.stringify({chart}.data[0].z.map(row => row.map(v => v === null ? 0 : Math.round(10 ** v * 100) / 100)))"
    told["map"] = json.loads(browser.value(counts))
    pointed_at(browser, told, chart, counts)
    browser.value(f"Plotly.relayout({chart}, {{'yaxis.range': [5.5, 3.5]}}).then(() => true)")
    told["map_closer"] = json.loads(settled(browser, counts, "[[2,1],[2,1]]"))
    browser.value("(s => { s.value = 'size'; s.dispatchEvent(new Event('change')); })(document.querySelector('.map-order'))")
    told["map_names"] = settled(browser, f"{chart}.layout.yaxis.ticktext[0]", "weight")
    browser.value("(box => box.click())(document.querySelector('#pages input[type=checkbox]'))")
    told["map_places"] = browser.value(f"JSON.stringify({chart}.data[1]?.z?.map(row => row.filter((_, i) => i % 2 === 0)))")
    browser.value("(s => { s.value = 'first'; s.dispatchEvent(new Event('change')); })(document.querySelector('.map-order'))")


def pointed_at(browser, told, chart, counts):
    """The map under a mouse: words beside the pointer, a click on a cell that nothing used and on a name, rows dragged over; mean, orders."""
    browser.value(f"{chart}.scrollIntoView({{block: 'center', behavior: 'instant'}})")

    def at(row, column):             # of the map, on the screen; column -1 is in the names at the left
        return browser.value(f"(c => (b => [b.left + c._fullLayout.xaxis._offset + ({column} < 0 ? -40 : c._fullLayout.xaxis.d2p({column})), "
                             f"b.top + c._fullLayout.yaxis._offset + c._fullLayout.yaxis.d2p({row})])(c.getBoundingClientRect()))({chart})")

    readout = "document.querySelector('#pages .readout').textContent"
    x, y = at(6, 0)
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    told["tip"] = browser.value("document.querySelector('.map-tip').textContent")
    told["tip_near"] = browser.value(f"(b => Math.hypot(b.left - {x}, b.top - {y}))(document.querySelector('.map-tip').getBoundingClientRect())")
    browser.mouse(at(6, 1))          # the tensor that lives in the first layer alone, in the other one
    told["gap_clicked"] = settled(browser, readout, "brief, activation, 4.0 KiB")
    browser.value("document.querySelector('#pages input[type=search]').focus()")
    browser.key("Escape")
    settled(browser, readout, "")
    browser.mouse(at(4, -1))
    told["name_clicked"] = settled(browser, readout, "hidden, activation, 8.0 KiB")
    browser.value("document.querySelector('#pages input[type=search]').focus()")
    browser.key("Escape")
    settled(browser, readout, "")
    browser.mouse(at(4, 0), at(4.3, 0.1), at(6, 0.2))
    told["dragged"] = json.loads(settled(browser, counts, "[[2,1],[2,1],[2,0]]"))
    button = "[...document.querySelectorAll('#pages button')].find(b => b.textContent === '\u2212').click()"
    browser.value(button)            # twice as many pages; then all
    browser.value(button)
    told["all_again"] = settled(browser, f"{chart}.data[0].z.length", 7)
    told["roles"] = ordered(browser, chart, "role")
    browser.value("document.querySelector('#pages input[value=writes]').click()")
    told["hottest"] = ordered(browser, chart, "hotness")
    ordered(browser, chart, "first")
    browser.value("document.querySelector('#pages input[value=reads]').click()")
    told["reads"] = json.loads(browser.value(counts))
    browser.value("document.querySelector('#pages input[value=both]').click()")
    told["counted"] = browser.value("document.querySelector('.map-counted').textContent")


def many(browser, page):
    """What a large page costs its reader's processor until it is ready; the map's rows added up, where a row shows the maximum of its pages, and the mean."""
    browser.open(page)               # in a process of its own, all of whose time counts
    told = {"processor_ms": browser.processor_ms()}
    chart = "document.querySelector('#pages .chart')"
    browser.value(f"{chart}.scrollIntoView()")
    settled(browser, f"!!{chart}.data", True)
    sums = f"{chart}.data[0].z.map(row => row.reduce((sum, v) => sum + (v === null ? 0 : 10 ** v), 0))"
    for kind in ("most", "mean"):
        browser.value(f"document.querySelector('#pages input[value={kind}]').click()")
        told[kind] = browser.value(sums)
    return told


def ordered(browser, chart, order):
    """The tensors' names in this order, top to bottom, once each."""
    browser.value(f"(s => {{ s.value = '{order}'; s.dispatchEvent(new Event('change')); }})(document.querySelector('.map-order'))")
    return browser.value(f"{chart}.layout.yaxis.ticktext.filter(name => !/^[0-9]/.test(name))")


def timeline_of(browser, told, page):
    """A wait leads to its move, the move to its tensor; what is selected stands in the address, which brings it back."""
    browser.value("document.querySelector('.next-stall').click()")
    told["stall"] = browser.value("document.querySelector('.told').textContent")
    told["address"] = browser.value("location.hash")
    browser.value("document.querySelectorAll('.told .in-cell')[1].click()")
    told["move"] = browser.value("document.querySelector('.told').textContent")
    told["painted"] = browser.value("new Set(document.querySelector('.timeline-canvas').getContext('2d').getImageData(0, 0, 600, 120).data).size")
    browser.value("(s => { s.value = '3'; s.dispatchEvent(new Event('change')); })(document.querySelector('.timeline-step'))")
    told["other_step"] = browser.value("document.querySelector('.timeline-canvas').dataset.view")
    browser.ask("Page.navigate", url="about:blank")
    browser.open(page + "#timeline/5/30000-70000/stall/0")
    told["recalled"] = settled(browser, "document.querySelector('.timeline-canvas')?.dataset.view", "30000-70000")
    told["recalled_stall"] = settled(browser, "(document.querySelector('.told')?.textContent ?? '').includes('stall before')", True)


def fits(browser, page, width):
    """How wide the document is; of each drawing the part of it that its box neither shows nor scrolls to; pairs of labels that overlap. All charts are drawn before."""
    def seen(height):
        browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True)
    seen(900)
    browser.ask("Page.navigate", url="file://" + os.path.abspath(page))
    settled(browser, "document.readyState", "complete")
    seen(browser.value("document.documentElement.scrollHeight") + 200)
    settled(browser, "document.querySelectorAll('.chart:empty').length", 0)
    time.sleep(1)                    # charts fit themselves to the width
    return browser.value("""(() => {
      const cut = [], overlap = [], charts = document.querySelectorAll('.chart').length;
      for (const svg of document.querySelectorAll('svg')) {
        const frame = svg.getBoundingClientRect();
        if (frame.width === 0 || svg.id === 'js-plotly-tester') continue;  // where Plotly measures text
        const box = svg.closest('.scroll, .chart') ?? svg.parentElement;
        if (frame.width > box.clientWidth + 1 && getComputedStyle(box).overflowX !== 'auto') cut.push(frame.width);
        // slanted labels have boxes that are larger than they are
        const level = [...svg.querySelectorAll('text')].filter(t => t.textContent !== '' && Math.abs(t.getScreenCTM().b) < 1e-3);
        const seen = level.map(t => [t.textContent, t.getBoundingClientRect()]).filter(([, b]) => b.width > 0);
        for (const [words, b] of seen) if (b.left < frame.left - 1 || b.right > frame.right + 1) cut.push(words);
        for (let i = 0; i < seen.length; ++i) for (let k = 0; k < i; ++k) {
          const [a, b] = [seen[i][1], seen[k][1]];
          if (a.left + 1 < b.right && b.left + 1 < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom) overlap.push([seen[k][0], seen[i][0]]);
        }
      }
      return {width: document.documentElement.scrollWidth, cut, overlap, charts, drawn: document.querySelectorAll('.chart .main-svg').length};
    })()""")


def main():
    what, chromium, page = sys.argv[1:4]
    if what == "picture":
        file, first, last = sys.argv[4:7]
        browser = Browser(chromium, int(sys.argv[7]) if len(sys.argv) > 7 else 1180)
        try:
            browser.open(page + ("#theme=" + sys.argv[8] if len(sys.argv) > 8 else "#theme=light"))
            browser.part(file, first, last)
        finally:
            browser.close()
        return
    for turn in range(int(sys.argv[4]) if what == "open" and len(sys.argv) > 4 else 1):
        browser = Browser(chromium)
        try:
            if what == "many":
                print(json.dumps(many(browser, page)))
            elif what == "fits":
                for width in sys.argv[4:]:
                    print(json.dumps(fits(browser, page, int(width))))
            elif what == "use":
                print(json.dumps(use(browser, page, sys.argv[4])))
            else:
                before = browser.processor_ms()
                wall = browser.open(page)
                cpu = browser.processor_ms() - before
                print(f"{turn}: page {browser.value('document.documentElement.dataset.ready')} ms, wall {wall:.0f} ms, processor {cpu:.0f} ms, "
                      f"parsed {browser.value('Math.round(performance.timing.domInteractive - performance.timing.navigationStart)')} ms")
        finally:
            browser.close()


if __name__ == "__main__":
    main()
