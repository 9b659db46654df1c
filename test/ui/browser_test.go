package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// browser is a tab of Chromium that has opened the page.
type browser struct {
	t   *testing.T
	ui  *runningUI
	ctx context.Context

	mu sync.Mutex
	// problems are errors and violations of the content security policy; requests are to other hosts.
	problems, requests []string
}

// stepTimeout limits each step of a test, and attemptTimeout each attempt of a wait: the browser may open another page.
const stepTimeout, attemptTimeout = 5 * time.Minute, 10 * time.Second

func openBrowser(t *testing.T, u *runningUI) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("chromium is not installed: use make soak SOAK_PARTS=ui")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1280, 900))
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stopAllocator)
	ctx, stop := chromedp.NewContext(allocator)
	t.Cleanup(stop)
	b := &browser{t: t, ui: u, ctx: ctx}
	if err := chromedp.Listen(ctx, b.record); err != nil { // starts the browser, which ends with this context
		t.Fatal(err)
	}
	b.run("logging in", command(network.Enable, network.EnableParams{}), command(log.Enable, cdp.Empty{}), chromedp.Navigate(u.loginURL), chromedp.WaitVisible(chromedp.CSS("main h1")))
	return b
}

// record keeps what no page may do.
func (b *browser) record(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch event := event.(type) {
	case *cdpruntime.EventExceptionThrown:
		b.problems = append(b.problems, fmt.Sprintf("%s %v", event.ExceptionDetails.Text, event.ExceptionDetails.Exception))
	case *log.EventEntryAdded:
		if event.Entry.Source != log.EntrySourceNetwork { // a lost connection is not an error of the page
			b.problems = append(b.problems, event.Entry.Text)
		}
	case *page.EventJavascriptDialogOpening:
		b.problems = append(b.problems, "dialog: "+event.Message)
	case *network.EventRequestWillBeSent:
		if address := event.Request.URL; !strings.HasPrefix(address, b.ui.base) && !strings.HasPrefix(address, "data:") {
			b.requests = append(b.requests, address)
		}
	}
}

// expectNoProblems fails the test if a script failed, the content security policy was violated, or another host was requested.
func (b *browser) expectNoProblems() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.True(b.t, len(b.problems) == 0, "problems of the page: %q", b.problems)
	require.True(b.t, len(b.requests) == 0, "requests to other addresses: %q", b.requests)
}

func command[P, R any](call cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, call, params)
		return err
	})
}

func (b *browser) run(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%s: %v; the page shows:\n%s", what, err, b.bestEffortText("body"))
	}
}

// bestEffortText returns the visible text of an element, and nothing while the browser opens another page.
func (b *browser) bestEffortText(selector string) string {
	ctx, cancel := context.WithTimeout(b.ctx, attemptTimeout)
	defer cancel()
	text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](fmt.Sprintf("document.querySelector(%s)?.innerText ?? ''", quote(selector))))
	return text
}

// open opens a page, whose path begins after the base.
func (b *browser) open(path string) {
	b.t.Helper()
	b.run("opening "+path, chromedp.Navigate(b.ui.base+path), chromedp.WaitVisible(chromedp.CSS("main h1")))
}

func (b *browser) text(selector string) string {
	b.t.Helper()
	return evaluate[string](b, fmt.Sprintf("document.querySelector(%s)?.innerText ?? ''", quote(selector)))
}

// evaluate returns the value of a script, or what its promise resolves to.
func evaluate[T any](b *browser, script string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, func(p *cdpruntime.EvaluateParams) { p.AwaitPromise = new(true) }))
	require.True(b.t, err == nil, "evaluating %.300s: %v", script, err)
	return value
}

func (b *browser) waitForText(selector string, texts ...string) {
	b.t.Helper()
	err := poll.UntilNil(b.t.Context(), func() error {
		shown := b.bestEffortText(selector)
		for _, text := range texts {
			if !strings.Contains(shown, text) {
				return fmt.Errorf("%s does not show %q:\n%s", selector, text, shown)
			}
		}
		return nil
	})
	require.NoError(b.t, err)
}

// do clicks the button of an action, confirms it, and returns what the dialog shows.
func (b *browser) do(label, confirm string) string {
	b.t.Helper()
	b.clickText("main a.button", label)
	return b.confirm(label, confirm)
}

// confirm confirms the action that the dialog shows, and returns what it shows then.
func (b *browser) confirm(label, confirm string) string {
	b.t.Helper()
	b.waitForText("#dialog", label, "kubectl yardmaster")
	if confirm != "" {
		b.run("typing", chromedp.SendKeys(chromedp.CSS("#confirm"), confirm))
	}
	b.run("confirming", chromedp.Click(chromedp.CSS("#dialog form button[type=submit]")))
	b.waitForText("#dialog", "The command")
	result := b.text("#dialog")
	b.run("closing", chromedp.Click(chromedp.CSS("#dialog a[data-close]")))
	return result
}

// clickText clicks the element with this text. Until htmx has found a link of its own, which may be after the page is
// complete, the link opens a page instead of the dialog.
func (b *browser) clickText(selector, text string) {
	b.t.Helper()
	script := fmt.Sprintf(`(() => {
		const e = [...document.querySelectorAll(%s)].find(e => e.innerText.trim() === %s), powered = e?.form ?? e;
		if (document.readyState !== 'complete' || !e || powered.hasAttribute('hx-get') && !powered.hasAttribute('data-htmx-powered')) return false;
		e.click();
		return true;
	})()`, quote(selector), quote(text))
	poll.Until(b.t, selector+" with the text "+text, func() bool { return evaluate[bool](b, script) })
}

func quote(text string) string {
	raw, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string can always be encoded
	}
	return string(raw)
}

// useColors selects light or dark.
func (b *browser) useColors(scheme string) {
	b.t.Helper()
	b.run("selecting "+scheme, command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
}

// screenshot writes what the page shows to a file, if SCREENSHOTS names a directory.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	const quality = 80
	image, err := chromedp.Call(b.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatWebp, Quality: new(int64(quality))})
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(dir+"/"+name+".webp", image.Data, 0o644))
}
