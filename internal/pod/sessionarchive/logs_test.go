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

	"github.com/yardmaster/yardmaster/test/require"
)

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
	for title, row := range map[string]struct {
		pods, maxPods, maxRunBytes int
		want                       string
	}{
		"logs": {3, 10, 150, "logs: 2, bytes: 150, truncated: 1, problems: 1 (see summary.json), the first: the logs of the run are longer than 150 bytes"},
		"Pods": {5, 3, 1000, "logs: 3, bytes: 300, problems: 1 (see summary.json), the first: the run has more than 3 Pods"},
	} {
		s := newLogServer(t)
		for i := range row.pods {
			s.addPod(fmt.Sprintf("p%d", i), "j1", map[string]string{"build": strings.Repeat("x", 100)})
		}
		settings := s.settings(t.TempDir())
		settings.maxPods, settings.maxRunBytes = row.maxPods, int64(row.maxRunBytes)
		result, err := settings.archiveRun(t.Context(), s.getenv, slog.New(slog.DiscardHandler))
		require.True(t, err == nil && strings.HasPrefix(result, row.want), "%s: %q, %v", title, result, err)
	}
}

// settings of a run with a Job.
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
		require.True(t, name == "claim/a/nightly/u1/run-1/"+summaryName || name == "claim/a/nightly/u1/run-1/build/attempt-1/ok/build.log",
			"file %s", name)
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
	for title, row := range map[string]struct {
		change func(*logServer)
		want   string
	}{
		"no permission": {func(s *logServer) { s.status = http.StatusForbidden }, "listing Pods: the API server returned 403 Forbidden: pods is forbidden"},
		"a node that does not answer": {func(s *logServer) {
			s.logs["p/build"] = func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }
		}, "logs: 0, bytes: 0, problems: 1"},
		"a connection that ends": {func(s *logServer) {
			s.logs["p/build"] = func(w http.ResponseWriter) {
				w.Header().Set("Content-Length", "100")
				_, _ = io.WriteString(w, "half")
			}
		}, "logs: 1, bytes: 4, truncated: 1, problems: 1"},
	} {
		t.Run(title, func(t *testing.T) {
			s, claim := newLogServer(t), t.TempDir()
			s.addPod("p", "j1", map[string]string{"build": "log\n"})
			row.change(s)
			result, err := s.archive("--claim="+claim, "--job=build/1/j1")
			require.True(t, err != nil && strings.HasPrefix(result, row.want) && !strings.Contains(result, "secret-token"), "%q, %v", result, err)
		})
	}
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
