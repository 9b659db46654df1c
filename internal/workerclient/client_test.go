package workerclient

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func workerThat(t *testing.T, handle http.HandlerFunc) (address string) {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
}

func TestStatsAreReadAsTheWorkerGivesThem(t *testing.T) {
	tests := map[string]struct {
		text              string
		want              *Stats
		draining, drained bool
	}{
		"it works":                       {`{"state":"Running","inFlight":3}`, &Stats{State: "Running", InFlight: 3}, false, false},
		"it counts":                      {`{"state":"Running","succeeded":5,"failed":1}`, &Stats{State: "Running", Succeeded: new(int64(5)), Failed: new(int64(1))}, false, false},
		"it has fetched in advance":      {`{"state":"Running","inFlight":3,"held":2}`, &Stats{State: "Running", InFlight: 3, Held: 2}, false, false},
		"it drains":                      {`{"state":"Draining","inFlight":1}`, &Stats{State: "Draining", InFlight: 1}, true, false},
		"it is drained":                  {`{"state":"Drained"}`, &Stats{State: "Drained"}, true, true},
		"it contradicts itself":          {`{"state":"Drained","inFlight":1}`, &Stats{State: "Drained", InFlight: 1}, true, false},
		"it says more than is asked for": {`{"state":"Running","breaker":"closed"}`, &Stats{State: "Running"}, false, false},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			got, err := New().Stats(t.Context(), workerThat(t, says(test.text)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
			if got.Draining() != test.draining || got.Drained() != test.drained {
				t.Errorf("draining %t, drained %t", got.Draining(), got.Drained())
			}
		})
	}
}

func TestAWorkerThatMisbehavesIsAnError(t *testing.T) {
	tests := map[string]struct {
		handle http.HandlerFunc
		want   string
	}{
		"what it says is no JSON":  {says("hello"), "invalid character"},
		"it says nothing":          {says(`{}`), `cannot be: state ""`},
		"it has less than nothing": {says(`{"state":"Running","inFlight":-1}`), "-1 in flight"},
		"its answer never ends":    {says(strings.Repeat(" ", longest+1)), "longer than 65536 bytes"},
		"it fails":                 {http.NotFound, "404 Not Found"},
		"it sends us elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}, "302 Found"},
		"it takes longer than patience": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline exceeded"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			_, err := New().Stats(t.Context(), workerThat(t, test.handle))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestDrainAndResumeArePosted(t *testing.T) {
	var got []string
	address := workerThat(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.URL.Path)
		w.WriteHeader(http.StatusAccepted)
	})
	c := New()
	if err := c.Drain(t.Context(), address); err != nil {
		t.Error(err)
	}
	if err := c.Resume(t.Context(), address); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"POST /drain", "POST /resume"}, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestWhoeverWaitsForASlotWaitsNoLongerThanAsked(t *testing.T) {
	c := New()
	for range atOnce {
		c.slots <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Stats(ctx, "127.0.0.1:1"); err != context.DeadlineExceeded { //nolint:errorlint // it is not wrapped
		t.Errorf("the error is %v", err)
	}
}
