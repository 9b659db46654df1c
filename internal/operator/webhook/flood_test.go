package webhook

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

const mebibyte = 1 << 20

// An operator without bounds would read and decode all of these bodies at the same time.
func TestFloodOfLargeBodiesDoesNotOccupyMemory(t *testing.T) {
	const peers, bodyBytes = 60, 6_600_000
	for title, row := range map[string]struct {
		path   string
		length int64
		want   int
	}{
		"without the secret path":  {poolsPath, bodyBytes, http.StatusNotFound},
		"with the secret path":     {"/" + segment + poolsPath, bodyBytes, http.StatusRequestEntityTooLarge},
		"without a Content-Length": {"/" + segment + poolsPath, -1, http.StatusLengthRequired},
	} {
		t.Run(title, func(t *testing.T) {
			err := poll.UntilNil(t.Context(), func() error {
				env := startServer(t)
				peak := measurePeak(t)
				var flood sync.WaitGroup
				for range peers {
					client := env.newClientAt("127.0.0.2")
					flood.Go(func() {
						status, err := sendZeros(env, client, row.path, row.length, bodyBytes)
						if err == nil && status != row.want { // the server may close the connection first
							t.Errorf("status %d, want %d", status, row.want)
						}
					})
				}
				err := env.sendReviews(20)
				flood.Wait()
				require.True(t, peak() <= 96*mebibyte, "%d MiB in use, including the clients", peak()/mebibyte)
				return err
			})
			require.NoError(t, err)
		})
	}
}

// A timeout is no mistake of the client: the operator may have been busy until it read the review.
func TestReviewThatDoesNotArriveInTimeIsATimeout(t *testing.T) {
	env := startServer(t)
	body, end := io.Pipe()
	defer end.Close()
	response, err := env.send(env.newClient(), "/"+segment+poolsPath+"?timeout=100ms", body, func(r *http.Request) { r.ContentLength = 100 })
	require.NoError(t, err)
	_ = response.Body.Close()
	require.Equal(t, http.StatusRequestTimeout, response.StatusCode)
}

func sendZeros(env *testServer, client *http.Client, path string, length, size int64) (status int, err error) {
	response, err := env.send(client, path, io.NopCloser(io.LimitReader(zeros{}, size)), func(r *http.Request) { r.ContentLength = length })
	if err != nil {
		return 0, err
	}
	_ = response.Body.Close()
	return response.StatusCode, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// expensiveShapes are the parts of a WorkerPool that need the most memory for their JSON.
var expensiveShapes = map[string]struct{ before, item, after string }{
	"containers":          {`{"spec":{"template":{"spec":{"initContainers":[`, `{}`, `]}}}}`},
	"ephemeral":           {`{"spec":{"template":{"spec":{"ephemeralContainers":[`, `{}`, `]}}}}`},
	"volumes":             {`{"spec":{"template":{"spec":{"volumes":[`, `{}`, `]}}}}`},
	"variables":           {`{"spec":{"template":{"spec":{"initContainers":[{"env":[`, `{}`, `]}]}}}}`},
	"arguments":           {`{"spec":{"template":{"spec":{"initContainers":[{"args":[`, `""`, `]}]}}}}`},
	"managed fields":      {`{"metadata":{"managedFields":[`, `{}`, `]}}`},
	"affinities":          {`{"spec":{"template":{"spec":{"affinity":{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[`, `{}`, `]}}}}}}`},
	"unknown fields":      {`{"spec":{"unknown":[`, `{}`, `]}}`},
	"nested unknown ones": {`{"spec":{"unknown":[`, `[[[[]]]]`, `]}}`},
}

func repeatItem(t *testing.T, shape struct{ before, item, after string }, memory int64) []byte {
	t.Helper()
	perItem := memoryToDecode([]byte(shape.item + ","))
	n := int((memory - memoryToDecode([]byte(shape.before+shape.after)) - 4096) / perItem)
	n = min(n, (maxReviewBytes-1024)/(len(shape.item)+1))
	items := strings.Repeat(shape.item+",", n) + shape.item
	return []byte(shape.before + items + shape.after)
}

func TestDecodingAReviewNeedsNoMoreMemoryThanReserved(t *testing.T) {
	for title, shape := range expensiveShapes {
		t.Run(title, func(t *testing.T) {
			env := startServer(t)
			review := reviewOf(t, repeatItem(t, shape, maxReviewMemory*9/10))
			reserved := memoryToDecode(review)
			client := env.newClient()
			peak := measurePeak(t)
			require.Equal(t, http.StatusOK, env.post(client, "/"+segment+poolsPath, review))
			used := int64(peak())
			t.Logf("%.1f MiB used, %.1f MiB reserved for %.1f MiB", float64(used)/mebibyte, float64(reserved)/mebibyte, float64(len(review))/mebibyte)
			require.True(t, used <= reserved, "%d bytes used, %d reserved", used, reserved)
		})
	}
}

func TestReviewsThatNeedMoreMemoryThanThereIsAreRefused(t *testing.T) {
	env := startServer(t)
	review := reviewOf(t, []byte(`{"spec":{"unknown":[`+strings.Repeat(`{},`, maxReviewMemory/(3<<10))+`{}]}}`))
	require.Equal(t, http.StatusRequestEntityTooLarge, env.post(env.newClient(), "/"+segment+poolsPath, review))
}

// One tenant creates the most expensive objects that the API server accepts, another small ones.
func TestExpensiveReviewsDelayNoSmallOnes(t *testing.T) {
	require.NoError(t, poll.UntilNil(t.Context(), func() error { return sendSmallAmongExpensive(t) }))
}

// sendSmallAmongExpensive returns an error if the small reviews are late.
func sendSmallAmongExpensive(t *testing.T) error {
	t.Helper()
	env := startServer(t)
	expensive := reviewOf(t, repeatItem(t, expensiveShapes["containers"], maxReviewMemory*3/4))
	peak := measurePeak(t)
	var flood sync.WaitGroup
	statuses := make(chan string, 50)
	for number := range cap(statuses) {
		client, timeout := env.newClient(), "5s"
		if number == 0 {
			timeout = testTimeout.String() // on a busy machine, too, this one succeeds
		}
		flood.Go(func() {
			status, err := env.tryPost(client, "/"+segment+poolsPath+"?timeout="+timeout, expensive)
			statuses <- fmt.Sprint(status, err)
		})
	}
	err := env.sendReviews(20)
	flood.Wait()
	close(statuses)
	count := map[string]int{}
	for status := range statuses {
		count[status]++
	}
	t.Logf("%v, %d MiB in use", count, peak()/mebibyte)
	if count["200 <nil>"] == 0 || count["200 <nil>"]+count["503 <nil>"]+count["408 <nil>"] != cap(statuses) {
		t.Errorf("the expensive reviews returned %v", count)
	}
	require.True(t, peak() <= 170*mebibyte, "%d MiB in use, including the clients", peak()/mebibyte)
	return err
}

func TestReviewWaitsForMemoryAtMostForItsTimeout(t *testing.T) {
	env := startServer(t)
	release, err := env.decoding.acquire(t.Context(), maxReviewMemory)
	require.NoError(t, err)
	large := reviewOf(t, repeatItem(t, expensiveShapes["containers"], 2*smallReviewMemory))
	var status int
	poll.Until(t, "a review to arrive within its timeout", func() bool {
		status = env.post(env.newClient(), "/"+segment+poolsPath+"?timeout=100ms", large)
		return status != http.StatusRequestTimeout
	})
	require.Equal(t, http.StatusServiceUnavailable, status)
	release()
	require.Equal(t, http.StatusOK, env.post(env.newClient(), "/"+segment+poolsPath, large))
	require.True(t, bytes.Contains(large, []byte("initContainers")), "the review has no containers")
}

// measurePeak returns a function that returns the largest increase of the heap since now.
func measurePeak(t *testing.T) func() uint64 {
	t.Helper()
	runtime.GC()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	baseline := sample[0].Value.Uint64()
	var mu sync.Mutex
	peak := uint64(0)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	measure := func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		metrics.Read(sample)
		peak = max(peak, sample[0].Value.Uint64()-min(baseline, sample[0].Value.Uint64()))
		return peak
	}
	go func() {
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				measure()
			}
		}
	}()
	return measure
}
