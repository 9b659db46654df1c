package prometheus

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
	"github.com/yardmaster/yardmaster/test/prometheustest"
	"github.com/yardmaster/yardmaster/test/require"
)

func newTestClient(t *testing.T, address string) *Client {
	c, err := NewClient(address)
	require.NoError(t, err)
	return c
}

func TestHistoryIsReadFromARealPrometheus(t *testing.T) {
	begin := time.Now().Add(-2 * time.Hour).Truncate(time.Minute)
	var samples strings.Builder
	samples.WriteString("# TYPE yardmaster_queue_messages gauge\n")
	for _, labels := range []string{`namespace="a",queue="mail",state="ready",pod="operator-1"`, `namespace="a",queue="mail",state="in_flight",pod="operator-1"`, `namespace="b",queue="mail",state="ready",pod="operator-1"`} {
		for minute := range 60 {
			fmt.Fprintf(&samples, "yardmaster_queue_messages{%s} %d %d\n", labels, minute+len(labels), begin.Add(time.Duration(minute)*time.Minute).Unix())
		}
	}
	c := newTestClient(t, prometheustest.Start(t, samples.String()))
	query := view.PastQuery(&view.Entry{Kind: view.Queues, Namespace: "a", Name: "mail"})
	series, err := c.Range(t.Context(), query, begin.Add(2*time.Minute), 2*time.Minute, time.Minute)
	require.NoError(t, err)
	const ready, inFlight = 57, 61 // the lengths of the labels
	want := map[string][]view.Point{
		"ready":     {{Time: begin, Value: ready}, {Time: begin.Add(time.Minute), Value: ready + 1}, {Time: begin.Add(2 * time.Minute), Value: ready + 2}},
		"in_flight": {{Time: begin, Value: inFlight}, {Time: begin.Add(time.Minute), Value: inFlight + 1}, {Time: begin.Add(2 * time.Minute), Value: inFlight + 2}},
	}
	require.Equal(t, want, series)
	_, err = c.Range(t.Context(), "nonsense(", begin, time.Minute, time.Minute)
	require.True(t, err != nil && strings.Contains(err.Error(), "parse error"), "an invalid query: %v", err)
	pools := view.PastQuery(&view.Entry{Kind: view.Pools, Namespace: "a", Name: "mailers"})
	series, err = c.Range(t.Context(), pools, begin, time.Minute, time.Minute)
	require.True(t, err == nil && len(series) == 0, "an unknown pool: %v, %v", series, err)
}

func TestAnswersOfOtherServersAreErrors(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another server was asked") }))
	defer other.Close()
	for title, row := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"no JSON":  {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, ""},
		"an error": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "\x1b[2J no", http.StatusForbidden) }, "403"},
		"a vector": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
		}, "not the history"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}, "redirects to another address"},
		"too large": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, io.LimitReader(endless{}, 2*maxResponseBytes))
		}, "more than 4194304 bytes"},
		"too many series": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, manySeries()) }, "not the history"},
	} {
		t.Run(title, func(t *testing.T) {
			server := httptest.NewServer(row.answer)
			defer server.Close()
			_, err := newTestClient(t, server.URL).Range(t.Context(), "x", time.Now(), time.Minute, time.Second)
			require.ErrorContains(t, err, row.want)
			require.True(t, !strings.ContainsAny(err.Error(), "\x1b\n"), "control characters in %q", err)
		})
	}
}

// endless is a text that does not end.
type endless struct{}

// Read implements io.Reader.
func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func manySeries() string {
	var series []string
	for i := range maxSeries + 1 {
		series = append(series, fmt.Sprintf(`{"metric":{"state":"%d"},"values":[[1,"1"]]}`, i))
	}
	return `{"status":"success","data":{"resultType":"matrix","result":[` + strings.Join(series, ",") + `]}}`
}

func TestUnknownValuesAreNotShown(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"state":"ready"},"values":[[1,"NaN"],[2,"+Inf"],[3,"4"]]}]}}`)
	}))
	defer server.Close()
	series, err := newTestClient(t, server.URL).Range(t.Context(), "x", time.Now(), time.Minute, time.Second)
	require.True(t, err == nil && len(series["ready"]) == 1 && series["ready"][0].Value == 4, "%v, %v", series, err)
}

func TestErrorsDoNotContainThePassword(t *testing.T) {
	_, err := newTestClient(t, "http://me:secret@127.0.0.1:1/").Range(t.Context(), "x", time.Now(), time.Minute, time.Second)
	require.True(t, err != nil && !strings.Contains(err.Error(), "secret"), "error %v", err)
	for _, address := range []string{"", "127.0.0.1:9090", "file:///etc/passwd", "http://", "http://me:secret@x:%zz"} {
		_, err := NewClient(address)
		require.True(t, err != nil && !strings.Contains(err.Error(), "secret"), "%q: error %v", address, err)
	}
}
