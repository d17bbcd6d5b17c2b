"""A headless Chromium, spoken to over a pipe in the DevTools protocol: no package, no port, no network."""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class Browser:
    def __init__(self, program):
        self.home = tempfile.mkdtemp(prefix="headroom_browser_")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()

        def wire():  # the browser reads commands from 3 and answers on 4
            os.dup2(os.dup(to_browser), 63), os.dup2(os.dup(from_browser), 62)
            os.dup2(63, 3), os.dup2(62, 4)

        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
                 "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
                 f"--user-data-dir={self.home}", "--window-size=1280,1000", "about:blank"]
        self.process = subprocess.Popen([program, *flags], preexec_fn=wire, close_fds=False, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser), os.close(from_browser)
        self._buffer, self._number, self._events = b"", 0, []
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=20)
        shutil.rmtree(self.home, ignore_errors=True)

    def _message(self, deadline):
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            chunk = os.read(self._read, 1 << 20)
            if not chunk:
                raise RuntimeError("the browser has ended")
            self._buffer += chunk
        text, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, timeout=60, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            answer = self._message(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._events.append(answer)

    def events(self, method):
        return [e["params"] for e in self._events if e.get("method") == method]

    def open(self, file):
        """Loads a file and waits until it is there."""
        self._events.clear()
        self.call("Page.navigate", url="file://" + str(file).replace("%", "%25").replace("#", "%23").replace("?", "%3F"))
        deadline = time.monotonic() + 60
        while not self.events("Page.loadEventFired"):
            self._events.append(self._message(deadline))
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, script):
        """The value of an expression in the page; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "a script failed") + " in " + script)
        return answer["result"].get("value")

    def complaints(self):
        """What the console would show in red since the page was opened."""
        errors = [e["exceptionDetails"].get("exception", {}).get("description", "?") for e in self.events("Runtime.exceptionThrown")]
        errors += [str(e["args"][:1]) for e in self.events("Runtime.consoleAPICalled") if e["type"] in ("error", "warning", "assert")]
        return errors + [e["entry"]["text"] for e in self.events("Log.entryAdded") if e["entry"]["level"] in ("error", "warning")]

    def addresses(self):
        """Everything that the page asked for."""
        return [e["request"]["url"] for e in self.events("Network.requestWillBeSent")]

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def key(self, key, **more):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def width(self, pixels, height=900):
        self.call("Emulation.setDeviceMetricsOverride", width=pixels, height=height, deviceScaleFactor=1, mobile=pixels < 600)
