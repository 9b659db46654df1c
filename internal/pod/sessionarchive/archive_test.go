package sessionarchive

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// startArchive runs the container, and returns the directory with its socket and a function that ends it.
func startArchive(t *testing.T, args ...string) (directory string, end func() error) {
	t.Helper()
	directory = t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, append([]string{"--directory", directory}, args...), func(name string) string {
			return map[string]string{"AGENTIC_NAMESPACE": "a", "AGENTIC_SESSION": "demo", "AGENTIC_JOB": "demo-r1-a1"}[name]
		}, io.Discard)
	}()
	return directory, func() error { cancel(); return <-ended }
}

// openArchive runs the container for a transcript, and returns a function that ends it without an error.
func openArchive(t *testing.T, args ...string) (w *Writer, end func()) {
	t.Helper()
	directory, stop := startArchive(t, args...)
	w, err := Open(t.Context(), directory)
	require.NoError(t, err)
	return w, func() {
		t.Helper()
		require.NoError(t, stop())
	}
}

// Files, such as commits that could not be pushed, are stored beside the transcript, unless the runner did not send them completely.
func TestFilesAreStoredBesideTheTranscript(t *testing.T) {
	claim := t.TempDir()
	w, end := openArchive(t, "--claim", claim)
	_, _ = w.Write([]byte("{\"type\":\"text\"}\n"))
	want := strings.Repeat("0123456789", maxPartBytes/4)
	require.NoError(t, w.WriteFile("shop.bundle", strings.NewReader(want)))
	require.NoError(t, w.WriteFile("empty.bundle", strings.NewReader("")))
	_, _ = w.Write([]byte(filePrefix + `"part.bundle","data":"YQ=="}` + "\n"))
	got := w.Close(t.Context())
	end()
	for name, text := range map[string]string{"shop.bundle": want, "empty.bundle": ""} {
		raw, err := os.ReadFile(filepath.Join(claim, got.Files[name]))
		require.True(t, err == nil && string(raw) == text && strings.HasSuffix(got.Files[name], "Z-demo-r1-a1-"+name), "%s: %+v, %v", name, got, err)
	}
	raw, err := os.ReadFile(filepath.Join(claim, got.Location))
	require.True(t, err == nil && string(raw) == "{\"type\":\"text\"}\n", "transcript %q, error %v", raw, err)
	require.True(t, got.Error == "" && !got.Truncated && len(got.Files) == 2 && strings.HasPrefix(got.Location, "a/demo/2"), "stored %+v", got)
	left, _ := filepath.Glob(filepath.Join(claim, ".*"))
	require.True(t, len(left) == 0, "left files: %v", left)
}

func TestFilesOutsideOfTheArchiveAreRefused(t *testing.T) {
	claim := t.TempDir()
	w, end := openArchive(t, "--claim", claim)
	require.NoError(t, w.WriteFile("../../evil", strings.NewReader("evil")))
	got := w.Close(t.Context())
	end()
	require.True(t, got.Error != "" && got.Location != "" && len(got.Files) == 0, "stored %+v", got)
}

// The runner is killed, or the node evicts it: what it wrote is stored without an answer that anybody reads.
func TestTranscriptOfARunnerThatWasKilledIsStored(t *testing.T) {
	claim := t.TempDir()
	w, end := openArchive(t, "--claim", claim)
	_, _ = w.Write([]byte("first\nsec"))
	_ = w.connection.Close()
	end() // SIGTERM does not interrupt the storing
	files := filesIn(t, claim)
	require.True(t, len(files) == 1, "stored %v", files)
	for name, text := range files {
		require.True(t, strings.HasSuffix(name, ".ndjson") && text == "first\nsec\n", "%s has %q", name, text)
	}
}

// Otherwise an agent could write transcripts of its own.
func TestOnlyOneConnectionIsAccepted(t *testing.T) {
	directory, end := startArchive(t, "--claim", t.TempDir())
	w, err := Open(t.Context(), directory)
	require.NoError(t, err)
	defer func() { w.Close(t.Context()); _ = end() }()
	poll.Until(t, "the socket to be removed, so that nothing can connect", func() bool {
		_, err := os.Stat(filepath.Join(directory, socketName))
		return os.IsNotExist(err)
	})
}

func TestContainerThatNoRunnerReachedEndsWithSIGTERM(t *testing.T) {
	directory, end := startArchive(t, "--claim", t.TempDir())
	poll.Until(t, "the socket", func() bool {
		_, err := os.Stat(filepath.Join(directory, socketName))
		return err == nil
	})
	require.NoError(t, end())
}

func TestLongTranscriptsAreTruncatedAtALine(t *testing.T) {
	out := &strings.Builder{}
	truncated, err := copyTranscript(out, strings.NewReader("12345\n6789\n1\n"), 12, nil)
	want := "12345\n6789\n" + `{"type":"runner","text":"The transcript is too long. Its rest is not archived."}` + "\n"
	require.True(t, err == nil && truncated && out.String() == want, "%q, truncated %v, error %v", out, truncated, err)
}

func TestArchiveThatDoesNotAnswerIsReportedAndDelaysNothing(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	server := newTestStore(t, func(http.ResponseWriter, *http.Request) { <-hang })
	w, _ := openArchive(t, server.arguments()...)
	_, _ = w.Write([]byte("a\n"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := w.Close(ctx)
	require.True(t, strings.Contains(got.Error, "did not answer in time"), "%+v", got)
}

func TestInvalidArgumentsAreRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"exactly one":                   nil,
		"exactly one of":                {"--claim", "/c", "--endpoint", "https://s3.example"},
		"requires --bucket":             {"--endpoint", "https://s3.example"},
		`"s3.example" is not a URL`:     {"--endpoint", "s3.example", "--bucket", "abc", "--credentials", "/c"},
		"flag provided but not defined": {"--other"},
	} {
		_, end := startArchive(t, args...)
		require.ErrorContains(t, end(), want)
	}
}

const (
	testBucket = "transcripts"
	testKeyID  = "AKIDTEST"
	testSecret = "secret-key-of-the-archive"
)

// testStore is an object store in memory, which verifies signatures.
type testStore struct {
	*httptest.Server

	t           *testing.T
	credentials string
	backend     *s3mem.Backend
	// authorizations are the headers of the requests.
	authorizations []string
}

// newTestStore starts a store, or a server with this handler instead.
func newTestStore(t *testing.T, handler http.HandlerFunc) *testStore {
	t.Helper()
	s := &testStore{t: t, credentials: t.TempDir(), backend: s3mem.New()}
	s.setSecret(testSecret)
	require.NoError(t, s.backend.CreateBucket(t.Context(), testBucket))
	objects := gofakes3.New(s.backend, gofakes3.WithV4Auth(map[string]string{testKeyID: testSecret}), gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	if handler == nil {
		handler = func(w http.ResponseWriter, r *http.Request) {
			s.authorizations = append(s.authorizations, r.Header.Get("Authorization"))
			objects.ServeHTTP(w, r)
		}
	}
	s.Server = httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s
}

func (s *testStore) setSecret(secret string) {
	s.t.Helper()
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": testKeyID + "\n", "AWS_SECRET_ACCESS_KEY": secret} {
		require.NoError(s.t, os.WriteFile(filepath.Join(s.credentials, name), []byte(value), 0o600))
	}
}

func (s *testStore) arguments() []string {
	return []string{"--endpoint", s.URL, "--bucket", testBucket, "--prefix", "team/agents/", "--region", "eu-central-1", "--credentials", s.credentials}
}

func (s *testStore) get(location string) string {
	s.t.Helper()
	object, err := s.backend.GetObject(s.t.Context(), testBucket, strings.TrimPrefix(location, "s3://"+testBucket+"/"), nil)
	require.True(s.t, err == nil, "%s: %v", location, err)
	defer object.Contents.Close()
	raw, err := io.ReadAll(object.Contents)
	require.NoError(s.t, err)
	return string(raw)
}

func TestTranscriptIsStoredInTheBucket(t *testing.T) {
	store := newTestStore(t, nil)
	for _, text := range []string{"{\"type\":\"text\"}\n", strings.Repeat(strings.Repeat("x", 1000)+"\n", 20_000)} { // 20 MB are one part too
		store.setSecret("expired")
		w, end := openArchive(t, store.arguments()...)
		store.setSecret(testSecret) // it is read when the transcript is stored
		_, _ = w.Write([]byte(text))
		got := w.Close(t.Context())
		require.True(t, got.Error == "" && strings.HasPrefix(got.Location, "s3://transcripts/team/agents/a/demo/2") &&
			strings.HasSuffix(got.Location, "Z-demo-r1-a1.ndjson"), "stored %+v", got)
		stored := store.get(got.Location)
		require.True(t, stored == text, "%d bytes instead of %d", len(stored), len(text))
		end()
	}
	require.True(t, len(store.authorizations) == 2, "requests %q", store.authorizations)
	for _, part := range []string{"AWS4-HMAC-SHA256 Credential=" + testKeyID, "/eu-central-1/s3/"} {
		require.Contains(t, store.authorizations[0], part)
	}
}

func TestRefusedUploadsAreReportedWithoutTheSecret(t *testing.T) {
	store := newTestStore(t, nil)
	for want, change := range map[string]func() []string{
		"signature":                         func() []string { store.setSecret("another-secret-key"); return store.arguments() },
		"bucket":                            func() []string { store.setSecret(testSecret); return append(store.arguments(), "--bucket", "missing") },
		"reading the Secret of the archive": func() []string { return append(store.arguments(), "--credentials", t.TempDir()) },
	} {
		w, end := openArchive(t, change()...)
		_, _ = w.Write([]byte("a\n"))
		got := w.Close(t.Context())
		require.True(t, strings.Contains(got.Error, want) && !strings.Contains(got.Error, "secret-key") && got.Location == "", "%s: %+v", want, got)
		end()
	}
}

// logServer is an API server with Pods and their logs.
type logServer struct {
	t *testing.T
	// pods by name, in JSON, and logs by Pod and container.
	pods map[string]string
	logs map[string]func(w http.ResponseWriter)
	// vanished Pods are only in lists.
	vanished map[string]bool
	// replaced are Pods that have changed since they were listed.
	replaced map[string]string
	// status of all answers, if it is not 200.
	status int
	// requests are the paths and queries.
	requests  []string
	directory string
	address   string
}

func newLogServer(t *testing.T) *logServer {
	t.Helper()
	s := &logServer{t: t, pods: map[string]string{}, logs: map[string]func(http.ResponseWriter){}, vanished: map[string]bool{}, replaced: map[string]string{}, directory: t.TempDir()}
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	s.address = server.Listener.Addr().String()
	for name, raw := range map[string][]byte{
		"token": []byte("secret-token\n"), "ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(s.directory, name), raw, 0o600))
	}
	return s
}

func (s *logServer) addPod(name, jobUID string, logs map[string]string) {
	var containers, statuses []string
	for _, container := range slices.Sorted(maps.Keys(logs)) {
		containers = append(containers, fmt.Sprintf(`{"name": %q}`, container))
		statuses = append(statuses, fmt.Sprintf(`{"name": %q, "state": {"terminated": {}}}`, container))
		s.logs[name+"/"+container] = func(w http.ResponseWriter) { _, _ = io.WriteString(w, logs[container]) }
	}
	s.addPodJSON(name, jobUID, fmt.Sprintf(`"spec": {"containers": [%s]}, "status": {"containerStatuses": [%s]}`, strings.Join(containers, ","), strings.Join(statuses, ",")))
}

func (s *logServer) addPodJSON(name, jobUID, rest string) {
	s.pods[name] = fmt.Sprintf(`{"metadata": {"name": %[1]q, "uid": "uid-%[1]s", "annotations": {"a": %[2]q},
		"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "uid": %[3]q, "controller": true}]}, %[4]s}`, name, "../../etc\n\"", jobUID, rest)
}

func (s *logServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests = append(s.requests, r.URL.String())
	const pods = "/api/v1/namespaces/a/pods"
	name, isLog := strings.CutSuffix(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, pods), "/"), "/log")
	switch log := s.logs[name+"/"+r.URL.Query().Get("container")+strings.ReplaceAll(r.URL.Query().Get("previous"), "true", "/previous")]; {
	case r.Header.Get("Authorization") != "Bearer secret-token" || !strings.HasPrefix(r.URL.Path, pods):
		w.WriteHeader(http.StatusUnauthorized)
	case s.status != 0:
		w.WriteHeader(s.status)
		_, _ = io.WriteString(w, `{"message": "pods is forbidden"}`)
	case name == "":
		s.serveList(w, r)
	case s.vanished[name] || s.pods[name] == "" || isLog && log == nil:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"message": "not found"}`)
	case isLog:
		log(w)
	case s.replaced[name] != "":
		_, _ = io.WriteString(w, s.replaced[name])
	default:
		_, _ = io.WriteString(w, s.pods[name])
	}
}

// serveList answers with one Pod a page.
func (s *logServer) serveList(w http.ResponseWriter, r *http.Request) {
	names, at := slices.Sorted(maps.Keys(s.pods)), 0
	if token := r.URL.Query().Get("continue"); token != "" {
		at = slices.Index(names, token)
	}
	if len(names) == 0 {
		_, _ = io.WriteString(w, `{"items": []}`)
		return
	}
	next := ""
	if at+1 < len(names) {
		next = names[at+1]
	}
	fmt.Fprintf(w, `{"metadata": {"continue": %q}, "items": [%s]}`, next, s.pods[names[at]])
}

func (s *logServer) getenv(name string) string {
	host, port, err := net.SplitHostPort(s.address)
	require.NoError(s.t, err)
	return map[string]string{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}[name]
}

// archive runs the command with more arguments, and returns what it reports.
func (s *logServer) archive(args ...string) (result string, err error) {
	s.t.Helper()
	resultFile := filepath.Join(s.t.TempDir(), "result")
	err = RunLogs(s.t.Context(), append([]string{
		"--namespace=a", "--sequence-uid=u1", "--path=a/nightly/u1/run-1", "--token-directory=" + s.directory, "--result-file=" + resultFile,
	}, args...), s.getenv, io.Discard)
	raw, readErr := os.ReadFile(resultFile)
	require.NoError(s.t, readErr)
	return string(raw), err
}

// mustArchive runs the command for a Job, which reports this result.
func (s *logServer) mustArchive(want string, args ...string) {
	s.t.Helper()
	result, err := s.archive(append([]string{"--job=build/1/j1"}, args...)...)
	require.True(s.t, err == nil && result == want, "result %q, error %v", result, err)
}

func filesIn(t *testing.T, directory string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, directory+"/")] = string(raw)
		return err
	})
	require.NoError(t, err)
	return files
}

func readSummary(t *testing.T, files map[string]string) logSummary {
	t.Helper()
	var summary logSummary
	err := json.Unmarshal([]byte(files["a/nightly/u1/run-1/"+summaryName]), &summary)
	require.True(t, err == nil, "%v: %v", err, slices.Sorted(maps.Keys(files)))
	return summary
}

func TestLogOfEachContainerIsAFileInTheClaim(t *testing.T) {
	s, claim := newLogServer(t), t.TempDir()
	s.addPod("nightly-build-1-x", "j1", map[string]string{"build": "first\n", "sidecar": "s\n"})
	s.addPod("nightly-build-2-x", "j2", map[string]string{"build": "second\n"})
	for range 2 { // a second attempt replaces the files of the first
		s.mustArchive("logs: 3, bytes: 15", "--claim="+claim, "--job=build/2/j2")
	}
	require.True(t, slices.ContainsFunc(s.requests, func(r string) bool { return strings.Contains(r, "limitBytes=67108865") }), "requests %v", s.requests)
	files := filesIn(t, claim)
	summary := readSummary(t, files)
	delete(files, "a/nightly/u1/run-1/"+summaryName)
	require.Equal(t, map[string]string{
		"a/nightly/u1/run-1/build/attempt-1/nightly-build-1-x/build.log":   "first\n",
		"a/nightly/u1/run-1/build/attempt-1/nightly-build-1-x/sidecar.log": "s\n",
		"a/nightly/u1/run-1/build/attempt-2/nightly-build-2-x/build.log":   "second\n",
	}, files)
	require.True(t, len(summary.Logs) == 3 && len(summary.Problems) == 0 && summary.Logs[2].File == "build/attempt-2/nightly-build-2-x/build.log",
		"%+v", summary)
}

func TestLogsAreStoredInTheBucket(t *testing.T) {
	s, store := newLogServer(t), newTestStore(t, nil)
	s.addPod("p", "j1", map[string]string{"build": "hello\n"})
	s.mustArchive("logs: 1, bytes: 6", store.arguments()...)
	const directory = "s3://transcripts/team/agents/a/nightly/u1/run-1/"
	require.Equal(t, "hello\n", store.get(directory+"build/attempt-1/p/build.log"))
	got := store.get(directory + summaryName)
	require.True(t, strings.Contains(got, `"file": "build/attempt-1/p/build.log"`), "summary %s", got)
}

// Anyone who may create Pods can write labels. The controller must be one of the Jobs.
func TestPodsOfOthersAreNotRead(t *testing.T) {
	s, claim := newLogServer(t), t.TempDir()
	s.addPod("forged", "other-job", map[string]string{"build": "forged\n"})
	s.addPod("own", "j1", map[string]string{"build": "own\n"})
	for name, change := range map[string][2]string{
		"not-controlled": {`"controller": true`, `"controller": false`}, "other-kind": {`"kind": "Job"`, `"kind": "ReplicaSet"`}, "other-group": {"batch/v1", "example.com/v1"},
	} {
		s.addPod(name, "j1", map[string]string{"build": "forged\n"})
		s.pods[name] = strings.ReplaceAll(s.pods[name], change[0], change[1])
	}
	s.mustArchive("logs: 1, bytes: 4", "--claim="+claim)
	for _, name := range []string{"forged", "not-controlled", "other-"} {
		require.True(t, !strings.Contains(strings.Join(s.requests, " "), "pods/"+name), "requests %v", s.requests)
	}
}

func TestLongLogsAreTruncatedAndMarked(t *testing.T) {
	const limit = 20 << 20
	s, claim := newLogServer(t), t.TempDir()
	s.addPod("p", "j1", map[string]string{"build": "", "short": "short\n"})
	s.logs["p/build"] = func(w http.ResponseWriter) {
		line := strings.Repeat("x", 1023) + "\n"
		for range 2 * limit / len(line) { // ignores limitBytes
			if _, err := io.WriteString(w, line); err != nil {
				return
			}
		}
	}
	settings, before := s.settings(claim), heapSize()
	settings.maxLogBytes, settings.maxRunBytes = limit, 2*limit
	result, err := settings.archiveRun(t.Context(), s.getenv, slog.New(slog.DiscardHandler))
	require.True(t, err == nil && result == fmt.Sprintf("logs: 2, bytes: %d, truncated: 1", limit+6), "%q, %v", result, err)
	grown := int64(heapSize()) - int64(before)
	require.True(t, grown <= 16<<20, "%d bytes more are in use", grown)
	raw, err := os.ReadFile(filepath.Join(claim, "run/build/attempt-1/p/build.log"))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("\n[The log is longer than %d bytes. Its rest is not archived.]\n", limit), string(raw[limit:]))
}

func heapSize() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapSys
}

func TestLogsAndPodsOfARunAreBoundedTogether(t *testing.T) {
	check := func(title string, pods, maxPods, maxRunBytes int, want string) {
		s := newLogServer(t)
		for i := range pods {
			s.addPod(fmt.Sprintf("p%d", i), "j1", map[string]string{"build": strings.Repeat("x", 100)})
		}
		settings := s.settings(t.TempDir())
		settings.maxPods, settings.maxRunBytes = maxPods, int64(maxRunBytes)
		result, err := settings.archiveRun(t.Context(), s.getenv, slog.New(slog.DiscardHandler))
		require.True(t, err == nil && strings.HasPrefix(result, want), "%s: %q, %v", title, result, err)
	}
	check("logs", 3, 10, 150, "logs: 2, bytes: 150, truncated: 1, problems: 1 (see summary.json), the first: the logs of the run are longer than 150 bytes")
	check("Pods", 5, 3, 1000, "logs: 3, bytes: 300, problems: 1 (see summary.json), the first: the run has more than 3 Pods")
}

func (s *logServer) settings(claim string) *logSettings {
	return &logSettings{
		storeSettings: storeSettings{claim: claim}, namespace: "a", sequenceUID: "u1", path: "run", tokenDirectory: s.directory,
		jobs: jobList{{"build", 1, "j1"}}, maxLogBytes: 1000, maxRunBytes: 1000, maxPods: 10,
	}
}

func TestMissingLogsAreReportedInTheSummary(t *testing.T) {
	s, claim := newLogServer(t), t.TempDir()
	for _, name := range []string{"p1", "p2", "p3", "p4"} {
		s.addPod(name, "j1", map[string]string{"build": "log\n"})
	}
	s.vanished["p2"] = true
	delete(s.logs, "p3/build")
	s.replaced["p4"] = strings.ReplaceAll(s.pods["p4"], "uid-p4", "another")
	result, err := s.archive("--claim="+claim, "--job=build/1/j1", "--job=test/1/j2", "--omitted-jobs=7")
	require.True(t, err == nil && strings.HasPrefix(result, "logs: 1, bytes: 4, problems: 5 (see summary.json), the first: the run has 7 more Jobs"),
		"%q, %v", result, err)
	summary := readSummary(t, filesIn(t, claim))
	var got []string
	for _, p := range summary.Problems {
		got = append(got, strings.TrimSpace(p.Step+" "+p.Pod+" "+p.Container))
	}
	require.Equal(t, []string{"", "build p2", "build p3 build", "build p4", "test"}, got)
}

func TestRestartedContainersHaveTheirPreviousLogToo(t *testing.T) {
	s, claim := newLogServer(t), t.TempDir()
	s.addPodJSON("p", "j1", `"spec": {"initContainers": [{"name": "init"}], "containers": [{"name": "build"}, {"name": "waiting"}]},
		"status": {"initContainerStatuses": [{"name": "init", "state": {"terminated": {}}}], "containerStatuses": [
			{"name": "build", "restartCount": 2, "state": {"terminated": {}}}, {"name": "waiting", "state": {"waiting": {"reason": "PodInitializing"}}}]}`)
	for name, text := range map[string]string{"p/init": "init\n", "p/build": "last\n", "p/build/previous": "before\n"} {
		s.logs[name] = func(w http.ResponseWriter) { _, _ = io.WriteString(w, text) }
	}
	s.mustArchive("logs: 3, bytes: 17", "--claim="+claim)
	require.Equal(t, "before\n", filesIn(t, claim)["a/nightly/u1/run-1/build/attempt-1/p/build.previous.log"])
}

// The API server accepts no such names. If that changes, they still do not lead out of the directory.
func TestHostileNamesDoNotLeadOutOfTheArchive(t *testing.T) {
	s, parent := newLogServer(t), t.TempDir()
	claim := filepath.Join(parent, "claim")
	require.NoError(t, os.Mkdir(claim, 0o700))
	s.addPod("../..", "j1", map[string]string{"build": "x"})
	s.addPod("p", "j1", map[string]string{"../../../../../../escaped": "x", "a/b": "x", "": "x"})
	s.addPod("q", "j2", map[string]string{"build": "x"})
	s.addPod("ok", "j3", map[string]string{"build": "x"})
	result, err := s.archive("--claim="+claim, "--job=build/1/j1", "--job=.../1/j2", "--job=build/1/j3")
	require.True(t, strings.HasPrefix(result, "logs: 1,"), "%q, %v", result, err)
	for name := range filesIn(t, parent) {
		require.True(t, name == "claim/a/nightly/u1/run-1/"+summaryName || name == "claim/a/nightly/u1/run-1/build/attempt-1/ok/build.log", "file %s", name)
	}
}

// Steps may mount the claim too.
func TestSymbolicLinksInTheClaimDoNotLeadOutOfIt(t *testing.T) {
	s, claim, outside := newLogServer(t), t.TempDir(), t.TempDir()
	require.NoError(t, os.Symlink(outside, filepath.Join(claim, "a")))
	s.addPod("p", "j1", map[string]string{"build": "x"})
	result, err := s.archive("--claim="+claim, "--job=build/1/j1")
	require.True(t, err != nil && strings.Contains(result, "escapes"), "%q, %v", result, err)
	files := filesIn(t, outside)
	require.True(t, len(files) == 0, "files %v", files)
}

func TestErrorsThatMayNotLastFailTheAttempt(t *testing.T) {
	check := func(title string, change func(*logServer), want string) {
		t.Run(title, func(t *testing.T) {
			s, claim := newLogServer(t), t.TempDir()
			s.addPod("p", "j1", map[string]string{"build": "log\n"})
			change(s)
			result, err := s.archive("--claim="+claim, "--job=build/1/j1")
			require.True(t, err != nil && strings.HasPrefix(result, want) && !strings.Contains(result, "secret-token"), "%q, %v", result, err)
		})
	}
	check("no permission", func(s *logServer) { s.status = http.StatusForbidden }, "listing Pods: the API server returned 403 Forbidden: pods is forbidden")
	check("a node that does not answer", func(s *logServer) {
		s.logs["p/build"] = func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }
	}, "logs: 0, bytes: 0, problems: 1")
	check("a connection that ends", func(s *logServer) {
		s.logs["p/build"] = func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
		}
	}, "logs: 1, bytes: 4, truncated: 1, problems: 1")
}

func TestArchiveThatIsStoppedSaysSo(t *testing.T) {
	s := newLogServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.addPod("p", "j1", map[string]string{"build": ""})
	s.logs["p/build"] = func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, "log\n")
		_ = http.NewResponseController(w).Flush()
		cancel()
		<-ctx.Done()
	}
	_, err := s.settings(t.TempDir()).archiveRun(ctx, s.getenv, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "context canceled")
}

func TestInvalidArgumentsForLogsAreRefused(t *testing.T) {
	s := newLogServer(t)
	for want, args := range map[string][]string{
		"--job are required": {"--claim=/c"},
		"exactly one of":     {"--job=a/1/b"},
	} {
		result, err := s.archive(args...)
		require.True(t, err != nil && strings.Contains(result, want), "%v: %q, %v", args, result, err)
	}
	for _, job := range []string{"a", "a/b", "a/b/c", "a/1/", "a/1"} {
		require.True(t, new(jobList).Set(job) != nil, "%s is accepted", job)
	}
}
