package ui

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/prometheus"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/watch"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

var testTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// testServer is a server for a cluster with objects. It records the commands that it runs.
type testServer struct {
	*Server

	t        testing.TB
	commands [][]string
	// code, output and errOutput are those of each command.
	code              int
	output, errOutput string
	// input is the standard input of the last command, and waits makes commands wait until they are ended.
	input string
	waits bool
}

func newTestServer(t testing.TB, objects []client.Object) *testServer {
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	s := &testServer{t: t}
	store := watch.NewStore(view.Scope{}, func() time.Time { return testTime })
	s.Server = NewServer(Config{
		Store: store, Now: func() time.Time { return testTime }, Place: "test",
		Run: func(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
			s.commands = append(s.commands, args)
			input, _ := io.ReadAll(in)
			s.input = string(input)
			fmt.Fprint(out, s.output)
			fmt.Fprint(errOut, s.errOutput)
			if s.waits {
				<-ctx.Done()
			}
			return s.code
		},
	}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	changed, unsubscribe := store.Subscribe()
	defer unsubscribe()
	go func() {
		defer close(ended)
		store.Run(ctx, fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build())
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	for !isSynced(store) {
		<-changed
	}
	return s
}

func isSynced(store *watch.Store) bool {
	state := store.Snapshot()
	return !slices.ContainsFunc(view.Kinds, func(kind *view.Kind) bool { return !state.Watches[kind].Synced })
}

func (s *testServer) do(r *http.Request) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, r)
	return recorder
}

func (s *testServer) get(path string) *httptest.ResponseRecorder {
	return s.do(newTestRequest(s.guard, http.MethodGet, path))
}

func (s *testServer) post(path string, form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "http://"+testHost+s.guard.base+path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "http://"+testHost)
	r.AddCookie(&http.Cookie{Name: cookieName, Value: s.guard.session})
	return s.do(r)
}

func (s *testServer) wantCommand(want ...string) {
	s.t.Helper()
	require.Equal(s.t, [][]string{want}, s.commands)
}

func TestActionRunsTheCommandThatThePageShows(t *testing.T) {
	s := newTestServer(t, []client.Object{testbuilder.SequentialJob("etl", "a").Step("load").Obj()})
	const path = "/k/seq/a/etl/action?do=suspend"
	s.output = "sequentialjob.yardmaster.dev/etl suspended\n"
	shown := s.get(path)
	require.True(t, strings.Contains(shown.Body.String(), "kubectl yardmaster seq suspend -n a etl") && len(s.commands) == 0, "page:\n%s", shown.Body)
	ran := s.post(path, nil)
	s.wantCommand("seq", "suspend", "--namespace=a", "--", "etl")
	require.Contains(t, ran.Body.String(), "etl suspended")
}

func TestFailedActionShowsTheErrorOfTheCommand(t *testing.T) {
	s := newTestServer(t, []client.Object{testbuilder.SequentialJob("etl", "a").Step("load").Obj()})
	s.code, s.errOutput = 2, "error: <b>forbidden</b>\n"
	body := s.post("/k/seq/a/etl/action?do=suspend", nil).Body.String()
	require.True(t, strings.Contains(body, "The command failed.") && strings.Contains(body, "error: &lt;b&gt;forbidden&lt;/b&gt;"), "page:\n%s", body)
}

func TestActionThatStopsWorkNeedsTheName(t *testing.T) {
	s := newTestServer(t, []client.Object{testbuilder.SequentialJob("etl", "a").Step("load").SuspendImmediately().Obj()})
	sj := s.Store.Snapshot().Entries[view.Sequences][0].Object.(*v1alpha1.SequentialJob)
	sj.Spec.Suspend = false // the builder suspends it too
	const path = "/k/seq/a/etl/action?do=suspend"
	for _, confirm := range []string{"", "et", "etl "} {
		body := s.post(path, url.Values{"confirm": {confirm}}).Body.String()
		require.True(t, strings.Contains(body, "Nothing was done") && len(s.commands) == 0, "confirm %q: commands %v:\n%s", confirm, s.commands, body)
	}
	s.post(path, url.Values{"confirm": {"etl"}})
	require.True(t, len(s.commands) == 1, "commands %v", s.commands)
}

func TestOnlyOfferedActionsRun(t *testing.T) {
	s := newTestServer(t, []client.Object{testbuilder.SequentialJob("etl", "a").Step("load").Obj()})
	for _, path := range []string{
		"/k/seq/a/etl/action?do=delete", "/k/seq/a/etl/action?do=rerun&arg=load", "/k/seq/a/etl/action?do=approve&arg=load", "/k/seq/a/etl/action?do=suspend&arg=--all",
		"/k/seq/a/other/action?do=suspend", "/k/seq/b/etl/action?do=suspend", "/k/job/a/etl/action?do=suspend", "/k/seq/a/--help/action?do=suspend", "/action", "/k/seq/action?do=suspend",
	} {
		got := s.post(path, nil)
		require.True(t, got.Code >= http.StatusBadRequest && len(s.commands) == 0, "%s: status %d, commands %q", path, got.Code, s.commands)
	}
}

func TestSelectedDeadLettersAreRequeuedOrDeletedByTheirIDs(t *testing.T) {
	queue := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "mail", Namespace: "a"}}
	confirmed := url.Values{"confirm": {"mail"}}
	for query, want := range map[string][]string{
		"do=requeue-selected&id=3&id=17":          {"queue", "dead", "requeue", "--namespace=a", "--", "mail", "3", "17"},
		"do=delete-selected&arg=3,17":             {"queue", "dead", "delete", "--yes", "--namespace=a", "--", "mail", "3", "17"},
		"do=requeue-matching&arg=no+such+address": {"queue", "dead", "requeue", "--filter=no such address", "--namespace=a", "--", "mail"},
		"do=delete-matching&arg=--all":            {"queue", "dead", "delete", "--filter=--all", "--yes", "--namespace=a", "--", "mail"},
		"do=delete-selected":                      nil,
		"do=delete-selected&id=--all":             nil,
		"do=delete-selected&id=0":                 nil,
		"do=delete-selected&id=1&id=":             nil,
		"do=delete-selected&arg=" + strings.Repeat("1,", view.MaxDeadLetters) + "1": nil,
		"do=delete-matching&arg=":            nil,
		"do=delete-matching&arg=a%1b":        nil,
		"do=delete-matching&arg=a%E2%80%AEb": nil,
	} {
		t.Run(query, func(t *testing.T) {
			s := newTestServer(t, []client.Object{queue.DeepCopy()})
			s.post("/k/queue/a/mail/action?"+query, confirmed)
			isRun := len(s.commands) == 1 && slices.Equal(s.commands[0], want)
			require.True(t, isRun || want == nil && len(s.commands) == 0, "commands %q, want %q", s.commands, want)
		})
	}
	s := newTestServer(t, []client.Object{queue})
	for _, query := range []string{"do=delete-selected&id=3", "do=delete-matching&arg=x"} {
		body := s.post("/k/queue/a/mail/action?"+query, nil).Body.String()
		require.True(t, strings.Contains(body, "Type ") && len(s.commands) == 0, "%s without the name: commands %q:\n%s", query, s.commands, body)
	}
}

func TestOnlyNamesOfPodsAreDrained(t *testing.T) {
	pool := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "mailers", Namespace: "a"}}
	s := newTestServer(t, []client.Object{pool})
	for _, worker := range []string{"", "--replicas=0", "-w", "a/b", "A", strings.Repeat("x", 300)} {
		got := s.post("/k/pool/a/mailers/action?do=drain-worker&arg="+url.QueryEscape(worker), url.Values{"confirm": {worker}})
		require.True(t, got.Code >= http.StatusBadRequest && len(s.commands) == 0, "%q: status %d, commands %q", worker, got.Code, s.commands)
	}
	const path = "/k/pool/a/mailers/action?do=drain-worker&arg=mailers-5c9f7d-x2k4p"
	s.post(path, url.Values{"confirm": {"mailers"}})
	require.True(t, len(s.commands) == 0, "commands %q without the name of the worker", s.commands)
	s.post(path, url.Values{"confirm": {"mailers-5c9f7d-x2k4p"}})
	s.wantCommand("pool", "drain", "--namespace=a", "--", "mailers", "mailers-5c9f7d-x2k4p")
}

func newInteractiveSession(phase v1alpha1.SessionPhase) *v1alpha1.AgenticSession {
	return &v1alpha1.AgenticSession{
		ObjectMeta: metav1.ObjectMeta{Name: "pair", Namespace: "a"}, Spec: v1alpha1.AgenticSessionSpec{Interactive: true},
		Status: v1alpha1.AgenticSessionStatus{Phase: phase, RunStatus: v1alpha1.RunStatus{Run: 1}},
	}
}

func TestMessageIsTheInputOfTheCommandAndIsSentOnceTheAgentWorksOnIt(t *testing.T) {
	s := newTestServer(t, []client.Object{newInteractiveSession(v1alpha1.SessionRunning)})
	s.output, s.waits = "▸ bash go test\n", true // the agent works until the end of the test
	body := s.post("/k/session/a/pair/message", url.Values{"message": {"--help\r\n<b>$(x)</b>"}}).Body.String()
	require.True(t, strings.Contains(body, "Sent: the agent works on it.") && strings.Contains(body, "data-sent") && s.input == "--help\n<b>$(x)</b>",
		"input %q; the page shows:\n%s", s.input, body)
	s.wantCommand("session", "attach", "--namespace=a", "--", "pair")
	s.output, s.errOutput, s.code, s.waits = "", "error: <i>409</i> the agent works on another message", 2, false
	if body := s.post("/k/session/a/pair/message", url.Values{"message": {"x"}}).Body.String(); !strings.Contains(body, "&lt;i&gt;409&lt;/i&gt; the agent works on another message") || strings.Contains(strings.ToLower(body), "sent") {
		t.Errorf("the page shows:\n%s", body)
	}
}

func TestOnlyRunningInteractiveSessionsGetMessages(t *testing.T) {
	other := newInteractiveSession(v1alpha1.SessionRunning)
	other.Name, other.Spec.Interactive = "batch", false
	stopped := newInteractiveSession(v1alpha1.SessionStopped)
	stopped.Name = "stopped"
	s := newTestServer(t, []client.Object{newInteractiveSession(v1alpha1.SessionRunning), other, stopped})
	for path, message := range map[string]string{
		"/k/session/a/batch/message": "x", "/k/session/a/stopped/message": "x", "/k/session/a/missing/message": "x", "/k/seq/a/pair/message": "x", "/message": "x", "/k/session/message": "x",
		"/k/session/a/pair/message": " \n", "/k/session/a/pair/changes/message": "x",
	} {
		got := s.post(path, url.Values{"message": {message}})
		require.True(t, got.Code >= http.StatusBadRequest && len(s.commands) == 0, "%s: status %d, commands %q", path, got.Code, s.commands)
	}
	for _, size := range []int{maxMessageBytes + 1, 10 * maxMessageBytes} {
		got := s.post("/k/session/a/pair/message", url.Values{"message": {strings.Repeat("x", size)}})
		require.True(t, got.Code == http.StatusBadRequest && len(s.commands) == 0, "%d bytes: status %d, commands %q", size, got.Code, s.commands)
	}
	got := s.get("/k/session/a/pair/message")
	require.True(t, got.Code == http.StatusNotFound, "GET: status %d", got.Code)
	body := s.get("/k/session/a/pair?log=").Body.String()
	require.True(t, strings.Contains(body, "message-text"), "the page of an interactive session has no field for a message")
	body = s.get("/k/session/a/batch?log=").Body.String()
	require.True(t, !strings.Contains(body, "message-text"), "the page of another session has a field for a message")
}

func TestExplanationTakesOnlyNamesOfObjects(t *testing.T) {
	s := newTestServer(t, nil)
	for _, query := range []string{"", "?namespace=a", "?namespace=a&name=--kubeconfig=x", "?namespace=-A&name=x", "?namespace=a&name=x/y", "?namespace=a&name=" + strings.Repeat("x", 300)} {
		got := s.get("/explain" + query)
		require.True(t, got.Code == http.StatusNotFound && len(s.commands) == 0, "%s: status %d, commands %q", query, got.Code, s.commands)
	}
	s.get("/explain?namespace=a&name=train")
	s.wantCommand("report", "explain", "--namespace=a", "--", "train")
}

func TestEventsEndWithTheStream(t *testing.T) {
	s := newTestServer(t, []client.Object{testbuilder.SequentialJob("etl", "a").Step("load").Obj()})
	ctx, stop := context.WithCancel(t.Context())
	request := newTestRequest(s.guard, http.MethodGet, "/events?page=/k/seq").WithContext(ctx)
	stop()
	got := httptest.NewRecorder()
	s.serveEvents(&deadlineRecorder{got}, request)
	require.True(t, got.Header().Get("Content-Type") == "text/event-stream" && strings.HasPrefix(got.Body.String(), "data: ") && len(s.streams) == 0,
		"%d streams, header %v, body %q", len(s.streams), got.Header(), got.Body)
}

type deadlineRecorder struct{ *httptest.ResponseRecorder }

func (*deadlineRecorder) SetWriteDeadline(time.Time) error { return nil }

func TestNumberOfStreamsIsLimited(t *testing.T) {
	s := newTestServer(t, nil)
	for range maxStreams {
		s.streams <- struct{}{}
	}
	got := s.get("/events?page=/")
	require.True(t, got.Code == http.StatusServiceUnavailable, "status %d", got.Code)
}

func TestBrowserLoadsAtMost300KB(t *testing.T) {
	s := newTestServer(t, nil)
	total := s.get("/").Body.Len()
	for name := range staticFiles {
		file := s.get("/static/" + name)
		require.True(t, file.Code == http.StatusOK, "%s: status %d", name, file.Code)
		total += file.Body.Len()
	}
	const limit = 300_000
	require.True(t, total <= limit, "%d bytes", total)
	t.Logf("%d bytes", total)
}

func TestUnknownFilesAndPagesDoNotExist(t *testing.T) {
	s := newTestServer(t, nil)
	for _, path := range []string{"/static/", "/static/../server.go", "/static/htmx/LICENSE", "/k", "/k/", "/k/job", "/k/seq/a", "/k/seq/a/b/c", "/k/seq/a/b/dead", "/k/queue/a/b/dead/x", "/k/queue/a/b/workers", "/k/seq/a/b/changes", "/k/pool/a/b/dead", "/events?page=/k/pool/a/b/workers", "/events?page=/nothing", "/events?page=/k/queue/a/b/dead"} {
		got := s.get(path)
		require.True(t, got.Code == http.StatusNotFound, "%s: status %d", path, got.Code)
	}
}

func TestMain(m *testing.M) {
	// The fake client does not end a list that is a watch.
	os.Setenv("KUBE_FEATURE_WatchListClient", "false")
	os.Exit(m.Run())
}

const testHost = "127.0.0.1:4711"

func newTestRequest(g *guard, method, path string) *http.Request {
	r := httptest.NewRequest(method, "http://"+testHost+g.base+path, http.NoBody)
	r.AddCookie(&http.Cookie{Name: cookieName, Value: g.session})
	return r
}

func TestOnlyRequestsOfThePageAreAccepted(t *testing.T) {
	const accepted = 0
	for name, row := range map[string]struct {
		method string
		change func(*guard, *http.Request)
		want   int
	}{
		"the page, in an old browser":   {http.MethodGet, func(*guard, *http.Request) {}, accepted},
		"the page":                      {http.MethodGet, func(_ *guard, r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }, accepted},
		"an address that someone typed": {http.MethodGet, func(_ *guard, r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") }, accepted},
		"a change from the page":        {http.MethodPost, func(_ *guard, r *http.Request) { r.Header.Set("Origin", "http://"+testHost) }, accepted},
		"another name that resolves to this machine (DNS rebinding)": {http.MethodGet, func(_ *guard, r *http.Request) { r.Host = "evil.example:4711" }, http.StatusMisdirectedRequest},
		"localhost instead of the address":                           {http.MethodGet, func(_ *guard, r *http.Request) { r.Host = "localhost:4711" }, http.StatusMisdirectedRequest},
		"another port":                                               {http.MethodGet, func(_ *guard, r *http.Request) { r.Host = "127.0.0.1:80" }, http.StatusMisdirectedRequest},
		"a path without the secret part":                             {http.MethodGet, func(_ *guard, r *http.Request) { r.URL.Path = "/" }, http.StatusNotFound},
		"a path that only begins like it":                            {http.MethodGet, func(g *guard, r *http.Request) { r.URL.Path = g.base + "x/" }, http.StatusNotFound},
		"no cookie":                                                  {http.MethodGet, func(_ *guard, r *http.Request) { r.Header.Del("Cookie") }, http.StatusUnauthorized},
		"another cookie":                                             {http.MethodGet, func(_ *guard, r *http.Request) { r.Header.Set("Cookie", cookieName+"=guess") }, http.StatusUnauthorized},
		"the token instead of the cookie": {http.MethodGet, func(g *guard, r *http.Request) {
			r.Header.Del("Cookie")
			r.URL.RawQuery = url.Values{"token": {g.token}}.Encode()
		}, http.StatusUnauthorized},
		"a page of another site":                    {http.MethodGet, func(_ *guard, r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
		"a page of another port of this machine":    {http.MethodGet, func(_ *guard, r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, http.StatusForbidden},
		"a change without an Origin":                {http.MethodPost, func(*guard, *http.Request) {}, http.StatusForbidden},
		"a change from another port":                {http.MethodPost, func(_ *guard, r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:80") }, http.StatusForbidden},
		"a change from a page without an origin":    {http.MethodPost, func(_ *guard, r *http.Request) { r.Header.Set("Origin", "null") }, http.StatusForbidden},
		"a change from an origin that begins alike": {http.MethodPost, func(_ *guard, r *http.Request) { r.Header.Set("Origin", "http://"+testHost+".evil.example") }, http.StatusForbidden},
		"a change from our origin without the cookie": {http.MethodPost, func(_ *guard, r *http.Request) {
			r.Header.Set("Origin", "http://"+testHost)
			r.Header.Del("Cookie")
		}, http.StatusUnauthorized},
		"another method": {http.MethodDelete, func(_ *guard, r *http.Request) { r.Header.Set("Origin", "http://"+testHost) }, http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(testHost)
			r := newTestRequest(g, row.method, "/")
			row.change(g, r)
			status, reason := g.check(r)
			require.True(t, status == row.want && (reason == "") == (status == accepted), "status %d (%s), want %d", status, reason, row.want)
		})
	}
}

func TestTokenIsExchangedOnceForACookieThatScriptsAndOtherSitesDoNotGet(t *testing.T) {
	s := newTestServer(t, nil)
	address, err := url.Parse(s.URL())
	require.NoError(t, err)
	first := s.do(httptest.NewRequest(http.MethodGet, address.String(), http.NoBody))
	require.True(t, first.Code == http.StatusOK && len(first.Result().Cookies()) == 1, "status %d, cookies %v", first.Code, first.Result().Cookies())
	cookie := first.Result().Cookies()[0]
	require.True(t, cookie.HttpOnly && cookie.SameSite == http.SameSiteStrictMode && cookie.Path == s.guard.base+"/" && cookie.Domain == "",
		"cookie %v", cookie)
	if second := s.do(httptest.NewRequest(http.MethodGet, address.String(), http.NoBody)); second.Code != http.StatusForbidden || len(second.Result().Cookies()) != 0 {
		t.Errorf("the second use has status %d and cookies %v", second.Code, second.Result().Cookies())
	}
	for _, token := range []string{"", "guess"} {
		other := newTestServer(t, nil)
		r := httptest.NewRequest(http.MethodGet, "http://"+testHost+other.guard.base+"/login?token="+token, http.NoBody)
		got := other.do(r)
		require.True(t, got.Code == http.StatusForbidden, "token %q: status %d", token, got.Code)
	}
}

func TestEachAnswerForbidsInlineScriptsFramesAndOtherSites(t *testing.T) {
	s := newTestServer(t, nil)
	for _, path := range []string{"/", "/k/seq", "/stale", "/static/ui.js", "/static/ui.css", "/nothing", "/k/seq/a/etl/action?do=suspend", "/explain"} {
		header := s.get(path).Header()
		policy := header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
			require.True(t, strings.Contains(policy, part), "%s: the policy lacks %s: %s", path, part, policy)
		}
		require.True(t, !strings.Contains(policy, "unsafe") && header.Get("X-Frame-Options") == "DENY" && header.Get("Referrer-Policy") == "no-referrer" && header.Get("Access-Control-Allow-Origin") == "",
			"%s: headers %v", path, header)
	}
	refused := s.do(httptest.NewRequest(http.MethodGet, "http://evil.example/", http.NoBody))
	require.True(t, refused.Code == http.StatusMisdirectedRequest && refused.Header().Get("Content-Security-Policy") != "", "headers %v", refused.Header())
}

func TestUIOpensThePageOfALink(t *testing.T) {
	for path, want := range map[string]bool{
		"/": true, "/k/seq/a/etl?log=load": true, "/search?q=x": true, "/k/queue/a/mail/dead": true,
		"": false, "k/seq": false, "//evil.example/k/seq": false, "https://evil.example/": false, "/login": false, "/k/other": false, "/%zz": false,
	} {
		got := IsPage(path)
		require.True(t, got == want, "%q is a page: %t", path, got)
	}
	s := newTestServer(t, nil)
	s.Open = "/k/seq/a/etl?log=load"
	address, err := url.Parse(s.URL())
	require.NoError(t, err)
	login := s.do(httptest.NewRequest(http.MethodGet, address.String(), http.NoBody))
	require.Contains(t, login.Body.String(), s.guard.base+"/k/seq/a/etl?log=load")
}

// newHistoryServer returns a server for the queue mail whose charts begin with what a Prometheus server answers.
func newHistoryServer(t *testing.T, answer http.HandlerFunc) *testServer {
	upstream := httptest.NewServer(answer)
	t.Cleanup(upstream.Close)
	c, err := prometheus.NewClient(upstream.URL)
	require.NoError(t, err)
	s := newTestServer(t, []client.Object{&v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "mail", Namespace: "a"}}})
	s.History = &History{Client: c, Window: 6 * time.Hour}
	return s
}

func TestPageDoesNotWaitForPrometheusAndShowsItsAnswerLater(t *testing.T) {
	release, requests := make(chan struct{}), atomic.Int64{}
	s := newHistoryServer(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		<-release
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"state":"ready"},"values":[[%d,"41"],[%d,"42"]]}]}}`, testTime.Unix()-120, testTime.Unix()-60)
	})
	changed, stop := s.Store.Subscribe()
	defer stop()
	for range 3 {
		body := s.get("/k/queue/a/mail").Body.String()
		require.True(t, strings.Contains(body, "Reading the history from Prometheus…"), "the page shows:\n%s", body)
	}
	close(release)
	<-changed
	body := s.get("/k/queue/a/mail").Body.String()
	require.True(t, strings.Contains(body, "History of the last 6h0m0s from Prometheus.") && strings.Contains(body, "largest 42"), "page:\n%s", body)
	require.Equal(t, 1, requests.Load())
}

func TestProblemsOfPrometheusAreShown(t *testing.T) {
	s := newHistoryServer(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<b>no</b>", http.StatusBadGateway) })
	changed, stop := s.Store.Subscribe()
	defer stop()
	s.get("/k/queue/a/mail")
	<-changed
	if body := s.get("/k/queue/a/mail").Body.String(); !strings.Contains(body, "The history cannot be read from Prometheus: ") || !strings.Contains(body, "502") || strings.Contains(body, "<b>no") {
		t.Errorf("the page shows:\n%s", body)
	}
}

func TestHistoryIsReadForALimitedNumberOfObjectsAtOnce(t *testing.T) {
	release, running, most := make(chan struct{}), atomic.Int64{}, atomic.Int64{}
	s := newHistoryServer(t, func(http.ResponseWriter, *http.Request) {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-release
	})
	defer close(release)
	entry, _ := s.Store.Get(parseLocation("/k/queue/a/mail", nil).kind, "a", "mail")
	for i := range 2 * maxPasts {
		other := *entry
		other.Name = fmt.Sprintf("mail-%d", i)
		s.past(t.Context(), &other)
	}
	s.pasts.mu.Lock()
	defer s.pasts.mu.Unlock()
	require.True(t, len(s.pasts.objects) <= maxPasts && s.pasts.reads <= maxPastReads, "%d objects, %d requests", len(s.pasts.objects), s.pasts.reads)
}
