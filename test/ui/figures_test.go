//go:build bench

package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func createSequences(t *testing.T, ns string, from, to int) {
	const writers = 16
	numbers := make(chan int)
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for i := range numbers {
				name := fmt.Sprintf("etl-%04d", i)
				if i%20 == 0 {
					failedSequence(t, ns, name, "container migrate exited with code 3: there is no migration to version 8", "schema=5")
				} else {
					runningSequence(t, ns, name)
				}
			}
		})
	}
	for i := from; i < to; i++ {
		numbers <- i
	}
	close(numbers)
	group.Wait()
}

func percentile(all []time.Duration, percent int) time.Duration {
	slices.Sort(all)
	return all[(len(all)-1)*percent/100].Round(time.Millisecond)
}

func patchProbe(t *testing.T, ns string, i int) time.Time {
	begin := time.Now()
	probe := &v1alpha1.SequentialJob{}
	probe.Namespace, probe.Name = ns, "etl-0001"
	patch := fmt.Sprintf(`{"status":{"reason":"Probe%dx"}}`, i)
	require.NoError(t, cluster.Status().Patch(t.Context(), probe, client.RawPatch(types.MergePatchType, []byte(patch))))
	return begin
}

// observeProbes keeps in window.seen when the page showed each probe for the first time.
func observeProbes(b *browser) {
	evaluate[bool](b, `(() => { window.seen = {}; new MutationObserver(() => { for (const m of document.querySelector('main').textContent.matchAll(/Probe(\d+)x/g)) window.seen[m[1]] ??= Date.now(); })
		.observe(document.querySelector('main'), {subtree: true, childList: true, characterData: true}); return true })()`)
}

// measureProbes returns the times from before a write to the API server until the page shows it.
func measureProbes(t *testing.T, b *browser, ns string, first, number int, pause time.Duration) []time.Duration {
	observeProbes(b)
	var all []time.Duration
	for i := first; i < first+number; i++ {
		begin := patchProbe(t, ns, i)
		script := fmt.Sprintf("new Promise(done => { const wait = () => window.seen[%d] ? done(window.seen[%d]) : setTimeout(wait, 5); wait(); })", i, i)
		shown := time.UnixMilli(evaluate[int64](b, script))
		all = append(all, shown.Sub(begin))
		time.Sleep(pause)
	}
	return all
}

// TestFigures prints the figures of docs/ui.md.
func TestFigures(t *testing.T) {
	ns := newNamespace(t, "figures-")
	createSequences(t, ns, 0, 1000)
	u := startUI(t, "-n", ns)
	b := openBrowser(t, u)
	var opened []time.Duration
	for range 10 {
		begin := time.Now()
		b.run("opening", chromedp.Navigate(u.base+"/"), chromedp.WaitVisible(chromedp.CSS("#attention tbody tr")))
		opened = append(opened, time.Since(begin))
	}
	t.Logf("1,000 objects: open to first view: median %s, largest %s", percentile(opened, 50), percentile(opened, 100))
	begin := time.Now()
	cold := startUI(t, "-n", ns)
	coldBrowser := openBrowser(t, cold)
	coldBrowser.waitForText("#kinds", "1000")
	t.Logf("1,000 objects: start of the command and of a browser to first view: %s", time.Since(begin).Round(time.Millisecond))
	cold.stop()
	b.open("/k/seq?q=etl-0001")
	all := measureProbes(t, b, ns, 0, 200, 50*time.Millisecond)
	t.Logf("1,000 objects: change to screen: median %s, p95 %s, largest %s", percentile(all, 50), percentile(all, 95), percentile(all, 100))
	t.Logf("1,000 objects: memory of the server: %d MB", u.memory(t)/1_000_000)
}

// benchDuration is UI_BENCH_DURATION, or 5 minutes.
func benchDuration(t *testing.T) time.Duration {
	text := os.Getenv("UI_BENCH_DURATION")
	if text == "" {
		return 5 * time.Minute
	}
	duration, err := time.ParseDuration(text)
	require.NoError(t, err)
	return duration
}

// TestFiguresOfReplayedChanges shows 100 changes a second that no API server makes, which would need most of two processors.
func TestFiguresOfReplayedChanges(t *testing.T) {
	ns := newNamespace(t, "replay-")
	changes := newReplay(t, ns)
	proxy := newAPIServerProxy(t)
	proxy.answer = changes.serve
	u := startUIBehind(t, proxy, "-n", ns)
	b := openBrowser(t, u)
	b.waitForText("#kinds", "5000")
	overview, list := b.openTab("/", "#attention tbody tr"), b.openTab("/k/seq", "main tbody tr")
	b.open("/k/seq?q=etl-0001")
	observeProbes(b)
	begin, used := time.Now(), u.processorTime(t)
	before, earlier := changes.count()
	time.Sleep(benchDuration(t))
	after, probes := changes.count()
	elapsed, used := time.Since(begin), u.processorTime(t)-used
	seen := evaluate[map[string]int64](b, "window.seen")
	all := timesUntilShown(probes, len(earlier), seen)
	t.Logf("5,000 objects, %.0f replayed changes/s for %s: change to screen: median %s, p95 %s, largest %s of %d; memory of the server %d MB",
		float64(after-before)/elapsed.Seconds(), elapsed.Round(time.Second), percentile(all, 50), percentile(all, 95), percentile(all, 100), len(all), u.memory(t)/1_000_000)
	t.Logf("processor time of the server with three open pages: %s for each change, %.0f%% of a core", (used / time.Duration(after-before)).Round(10*time.Microsecond), 100*used.Seconds()/elapsed.Seconds())
	t.Logf("the overview did not answer for at most %.0f ms, the list of all for %.0f ms", evaluate[float64](overview, "window.maxLag"), evaluate[float64](list, "window.maxLag"))
}

// timesUntilShown returns the time until each probe, or a later one, was shown: a page does not show what has changed again
// before. The probes before first are older than the observation, and the last ones may not be shown yet.
func timesUntilShown(probes []time.Time, first int, seen map[string]int64) []time.Duration {
	var all []time.Duration
	earliest := time.Time{}
	for i := len(probes) - 1; i >= first; i-- {
		if shown, isShown := seen[strconv.Itoa(i)]; isShown {
			earliest = time.UnixMilli(shown)
		}
		if !earliest.IsZero() {
			all = append(all, earliest.Sub(probes[i]))
		}
	}
	return all
}

// openTab opens a page in another tab, and measures the longest time in which it does not answer.
func (b *browser) openTab(path, selector string) *browser {
	ctx, stop := chromedp.NewContext(b.ctx)
	b.t.Cleanup(stop)
	tab := &browser{t: b.t, ui: b.ui, ctx: ctx}
	require.NoError(b.t, chromedp.Do(ctx, chromedp.Navigate(b.ui.base+path), chromedp.WaitVisible(chromedp.CSS(selector))))
	evaluate[bool](tab, `(() => { window.maxLag = 0; let last = performance.now(); setInterval(() => { const now = performance.now(); window.maxLag = Math.max(window.maxLag, now - last - 20); last = now; }, 20); return true })()`)
	return tab
}

func (u *runningUI) processorTime(t *testing.T) time.Duration {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", u.Process.Pid))
	require.NoError(t, err)
	const user, system, ticksPerSecond = 13, 14, 100
	total := time.Duration(0)
	fields := strings.Fields(string(raw))
	for _, i := range []int{user, system} {
		ticks, err := strconv.Atoi(fields[i])
		require.NoError(t, err)
		total += time.Duration(ticks) * time.Second / ticksPerSecond
	}
	return total
}

// memory returns the most memory that the process has used, in bytes.
func (u *runningUI) memory(t *testing.T) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", u.Process.Pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kilobytes, err := strconv.ParseInt(fields[1], 10, 64)
			require.NoError(t, err)
			return kilobytes << 10
		}
	}
	t.Fatal("the memory of the process is unknown")
	return 0
}

// replay answers requests for the SequentialJobs of a namespace instead of the API server, whose writes need more processor
// time than the page: with 5,000 objects, of which it changes 100 a second. Ten of these changes are of the probe.
type replay struct {
	objects []*v1alpha1.SequentialJob
	ns      string

	mu               sync.Mutex
	version, changes int
	probes           []time.Time // the times at which the probe was changed
}

// newReplay copies objects of the API server, as it returns them.
func newReplay(t *testing.T, ns string) *replay {
	running, failed := runningSequence(t, ns, "running"), failedSequence(t, ns, "failed", "container migrate exited with code 3: there is no migration to version 8", "schema=5")
	r := &replay{ns: ns, version: 1000}
	for i := range 5000 {
		object := running.DeepCopy()
		if i%20 == 0 {
			object = failed.DeepCopy()
		}
		object.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SequentialJob"}
		object.Name, object.UID = fmt.Sprintf("etl-%04d", i), types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i))
		r.objects = append(r.objects, object)
	}
	return r
}

// serve answers a request, if it is about the SequentialJobs.
func (r *replay) serve(w http.ResponseWriter, request *http.Request) bool {
	if r == nil || !strings.HasSuffix(request.URL.Path, "/namespaces/"+r.ns+"/sequentialjobs") {
		return false
	}
	query := request.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	if query.Get("watch") == "" {
		list := &v1alpha1.SequentialJobList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SequentialJobList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1000"}}
		for _, object := range r.objects {
			list.Items = append(list.Items, *object)
		}
		send(encoder, list)
		return true
	}
	if query.Get("sendInitialEvents") == "true" {
		for _, object := range r.objects {
			send(encoder, event("ADDED", object))
		}
		end := &v1alpha1.SequentialJob{TypeMeta: r.objects[0].TypeMeta, ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1000", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
		send(encoder, event("BOOKMARK", end))
	}
	r.change(request, encoder, w.(http.Flusher))
	return true
}

// send reports whether the client still reads.
func send(encoder *json.Encoder, object any) bool {
	err := encoder.Encode(object)
	return err == nil
}

func event(kind string, object any) any {
	return map[string]any{"type": kind, "object": object}
}

// change changes objects until the request ends, each 10 ms one.
func (r *replay) change(request *http.Request, encoder *json.Encoder, flusher http.Flusher) {
	const perSecond, probeEach = 100, 10
	flusher.Flush()
	begin := time.Now()
	for i := 0; request.Context().Err() == nil; i++ {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / perSecond)))
		r.mu.Lock()
		number := 2 + i%4998
		if i%probeEach == 0 {
			number = 1
		}
		object := r.objects[number].DeepCopy()
		for j := range object.Status.Steps {
			object.Status.Steps[j].Phase = v1alpha1.StepPending
			if j < i%4 {
				object.Status.Steps[j].Phase = v1alpha1.StepSucceeded
			}
		}
		if number == 1 {
			object.Status.Reason = fmt.Sprintf("Probe%dx", len(r.probes))
			r.probes = append(r.probes, time.Now())
		}
		r.version++
		r.changes++
		object.ResourceVersion = fmt.Sprint(r.version)
		r.mu.Unlock()
		if !send(encoder, event("MODIFIED", object)) {
			return
		}
		flusher.Flush()
	}
}

// count returns how many changes there were, and when those of the probe were.
func (r *replay) count() (int, []time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes, append([]time.Time{}, r.probes...)
}
