package workercommand

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/internal/pod/workerclient"
	"github.com/yardmaster/yardmaster/test/background"
	"github.com/yardmaster/yardmaster/test/output"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/worker"
)

// newScriptRunner returns a runner that runs a shell script for each job, and the output of the scripts.
func newScriptRunner(script string) (*commandRunner, *bytes.Buffer) {
	out := &bytes.Buffer{}
	return &commandRunner{command: []string{"/bin/sh", "-c", script}, out: out, errOut: &bytes.Buffer{}}, out
}

func TestExitCodeDecidesWhatHappensToTheJob(t *testing.T) {
	for name, row := range map[string]struct{ script, want string }{
		"exit code 0":                       {"exit 0", "done"},
		"exit code 0 without reading input": {"exec 0<&-; exit 0", "done"},
		"exit code 65":                      {"echo no such order >&2; exit 65", "dead: exit status 65: no such order"},
		"exit code 75":                      {"exit 75", "retry: exit status 75:"},
		"any other exit code":               {"echo oh no >&2; exit 1", "retry: exit status 1: oh no"},
		"killed by a signal":                {"kill -9 $$", "retry: signal: killed:"},
		"exit code 0 with a running child":  {"sleep 60 & exit 0", "done"},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := newScriptRunner(row.script)
			require.Equal(t, row.want, describeResult(e.handle(t.Context(), newJob())))
		})
	}
	t.Run("a command that cannot start snoozes the job", func(t *testing.T) {
		e := &commandRunner{command: []string{filepath.Join(t.TempDir(), "none")}}
		require.Equal(t, "snoozed", describeResult(e.handle(t.Context(), newJob())))
	})
}

func TestCommandReceivesTheJobWithoutArguments(t *testing.T) {
	e, out := newScriptRunner(`cat; echo; echo "$# $YARDMASTER_JOB_ID $YARDMASTER_JOB_KIND $YARDMASTER_JOB_QUEUE $YARDMASTER_JOB_PRIORITY ` +
		`$YARDMASTER_JOB_ATTEMPT $YARDMASTER_JOB_MAX_ATTEMPTS $YARDMASTER_JOB_SENT"; echo "$YARDMASTER_JOB_HEADERS"`)
	j := newJob()
	j.Payload = []byte("$(touch x); `id`")
	j.Headers = map[string][]string{"PATH": {"forged"}, "a\x00": {"$(id)"}}
	require.NoError(t, e.handle(t.Context(), j))
	want := "$(touch x); `id`\n0 7 bill orders high 2 5 2026-03-01T12:00:00Z\n" + `{"PATH":["forged"],"a\u0000":["$(id)"]}` + "\n"
	require.Equal(t, want, out.String())
	j.Headers = map[string][]string{"Big": {strings.Repeat("x", maxHeaderBytes)}}
	err := e.handle(t.Context(), j)
	require.True(t, worker.IsDeadLetter(err), "headers that are too long cause %v, want a dead letter", err)
}

// Otherwise no attempt could start, and the job would return to its queue without end.
func TestAKindThatNoEnvironmentVariableCanHaveIsOmitted(t *testing.T) {
	e, out := newScriptRunner(`echo "kind: $YARDMASTER_JOB_KIND"`)
	j := newJob()
	j.Kind = "a\x00b"
	err := e.handle(t.Context(), j)
	require.True(t, err == nil && out.String() == "kind: \n", "the command wrote %q: %v", out, err)
	header := http.Header{}
	setJobHeaders(header, j)
	require.True(t, header["Yardmaster-Job-Kind"] == nil, "a request has the header %q", header["Yardmaster-Job-Kind"])
}

func TestProcessGroupIsTerminatedWhenTheContextEnds(t *testing.T) {
	for name, row := range map[string]struct {
		script  string
		maxTime time.Duration
	}{
		"a command that handles SIGTERM exits at once":            {"sleep 60 & echo $! >%s; wait", terminationGracePeriod},
		"one that exits with 0 on SIGTERM has not succeeded":      {"trap 'exit 0' TERM; sleep 60 & echo $! >%s; wait", terminationGracePeriod},
		"a command that ignores SIGTERM is killed a little later": {"trap '' TERM; sleep 60 & echo $! >%s; wait; sleep 60", 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, poll.UntilNil(t.Context(), func() error { // a busy machine can be late
				if took := cancelScript(t, row.script); took > row.maxTime {
					return fmt.Errorf("termination took %s, want at most %s", took, row.maxTime)
				}
				return nil
			}))
		})
	}
}

// cancelScript cancels a script that has a child process, and returns how long the termination took.
func cancelScript(t *testing.T, script string) (took time.Duration) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pid")
	e, _ := newScriptRunner(strings.Replace(script, "%s", file, 1))
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.handle(ctx, newJob()) }()
	pid := 0
	poll.Until(t, "the child process to run", func() bool {
		text, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0
	})
	startedAt := time.Now()
	cancel(worker.ErrCanceled)
	require.ErrorIs(t, <-done, context.Canceled)
	took = time.Since(startedAt)
	poll.Until(t, "the child process to exit", func() bool { return hasExited(pid) })
	return took
}

// hasExited reports whether a process has exited. Zombie processes have exited, too.
func hasExited(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

func TestCommandThatExceedsItsTimeLimitIsRetried(t *testing.T) {
	e, _ := newScriptRunner("sleep 60")
	e.timeout = 50 * time.Millisecond
	require.Equal(t, "retry: the command exceeded its time limit", describeResult(e.handle(t.Context(), newJob())))
}

func TestInvalidArgumentsAreRejected(t *testing.T) {
	for name, row := range map[string]struct {
		args []string
		want string
	}{
		"neither mode":           {nil, "exactly one of --forward and --exec is required"},
		"both modes":             {[]string{"--forward", "http://x", "--exec", "--", "true"}, "exactly one of --forward and --exec is required"},
		"no command":             {[]string{"--exec"}, "--exec requires a command"},
		"no such command":        {[]string{"--exec", "--", "no-such-command"}, `"no-such-command"`},
		"not a URL":              {[]string{"--forward", "127.0.0.1:80"}, "--forward is"},
		"unsupported URL scheme": {[]string{"--forward", "file:///etc/passwd"}, "--forward is"},
		"zero timeout":           {[]string{"--forward", "http://x", "--forward-timeout", "0s"}, "--forward-timeout is 0s"},
		"unexpected argument":    {[]string{"--forward", "http://x", "y"}, `unexpected argument "y"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseArguments(row.args, io.Discard)
			require.ErrorContains(t, err, row.want)
		})
	}
}

// runCommand runs a worker of the queue "orders" until stop is called, or the test ends. Its output is that of the commands that it runs.
func runCommand(t *testing.T, q *queuetest.Queue, output io.Writer, arguments ...string) (stop func()) {
	t.Helper()
	arguments = append([]string{"--broker-url", q.URL, "--queues", "orders", "--admin-address", "0", "--log-level", "error"}, arguments...)
	return background.Run(t, func(ctx context.Context) error { return Run(ctx, arguments, output, output) })
}

var sentTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newJob() *worker.Job {
	return &worker.Job{
		ID: "7", Kind: "bill", Queue: "orders", Priority: "high", Payload: []byte("\x00payload"), Attempt: 2, MaxAttempts: 5, SentTime: sentTime,
		Headers: map[string][]string{
			"Tenant": {"a", "b"}, "Content-Type": {"application/json"}, "Yardmaster-Job-Id": {"forged"}, "Authorization": {"forged"},
			"not a name": {"x"}, "Smuggled": {"a\r\nHost: b"},
		},
	}
}

// describeResult describes what the result of a handler does to its job.
func describeResult(err error) string {
	after, retry := worker.RetryAfter(err)
	switch {
	case err == nil:
		return "done"
	case worker.IsDeadLetter(err):
		return "dead: " + err.Error()
	case worker.IsSnooze(err):
		return "snoozed"
	case retry:
		return fmt.Sprintf("retry after %s", after)
	default:
		return "retry: " + err.Error()
	}
}

func forwardTo(t *testing.T, timeout time.Duration, server http.HandlerFunc) *forwarder {
	t.Helper()
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	target := require.Call(url.Parse(s.URL + "/jobs")).Succeeds(t)
	return newForwarder(target, timeout)
}

func TestResponseDecidesWhatHappensToTheJob(t *testing.T) {
	for name, row := range map[string]struct {
		status int
		header http.Header
		body   string
		want   string
	}{
		"200":                        {200, nil, "", "done"},
		"204":                        {204, nil, "", "done"},
		"429":                        {429, nil, "slow down", "retry: the server responded 429 Too Many Requests slow down"},
		"429 with seconds":           {429, http.Header{"Retry-After": {"120"}}, "", "retry after 2m0s"},
		"503 with a date":            {503, http.Header{"Retry-After": {"Mon, 02 Jan 2006 15:04:05 GMT"}}, "", "retry after 0s"},
		"503 with more than a day":   {503, http.Header{"Retry-After": {"999999"}}, "", "retry after 24h0m0s"},
		"503 with an invalid value":  {503, http.Header{"Retry-After": {"soon"}}, "", "retry: the server responded 503 Service Unavailable"},
		"400":                        {400, nil, "no such order", "dead: the server responded 400 Bad Request no such order"},
		"404":                        {404, nil, "", "dead: the server responded 404 Not Found"},
		"500":                        {500, nil, "oh no", "retry: the server responded 500 Internal Server Error oh no"},
		"a redirect is not followed": {302, http.Header{"Location": {"http://127.0.0.1:1/"}}, "", "retry: the server responded 302 Found"},
		"a long body is truncated":   {400, nil, strings.Repeat("x", 9000), "dead: the server responded 400 Bad Request " + strings.Repeat("x", errorBodyBytes)},
	} {
		t.Run(name, func(t *testing.T) {
			f := forwardTo(t, time.Minute, func(response http.ResponseWriter, _ *http.Request) {
				maps.Copy(response.Header(), row.header)
				response.WriteHeader(row.status)
				_, _ = io.WriteString(response, row.body)
			})
			require.Equal(t, row.want, describeResult(f.handle(t.Context(), newJob())))
		})
	}
}

func TestRequestDescribesTheJobAndHeadersCannotBeForged(t *testing.T) {
	got := http.Header{}
	var body []byte
	f := forwardTo(t, time.Minute, func(_ http.ResponseWriter, request *http.Request) {
		got = request.Header
		body, _ = io.ReadAll(request.Body)
	})
	require.NoError(t, f.handle(t.Context(), newJob()))
	want := http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {"8"}, "User-Agent": {"Go-http-client/1.1"},
		"Yardmaster-Job-Id": {"7"}, "Yardmaster-Job-Kind": {"bill"}, "Yardmaster-Job-Queue": {"orders"}, "Yardmaster-Job-Priority": {"high"},
		"Yardmaster-Job-Attempt": {"2"}, "Yardmaster-Job-Max-Attempts": {"5"}, "Yardmaster-Job-Sent": {"2026-03-01T12:00:00Z"},
		"Yardmaster-Header-Tenant": {"a", "b"}, "Yardmaster-Header-Content-Type": {"application/json"},
		"Yardmaster-Header-Yardmaster-Job-Id": {"forged"}, "Yardmaster-Header-Authorization": {"forged"},
	}
	require.Equal(t, want, got)
	require.Equal(t, "\x00payload", string(body))
}

func TestMissingResponse(t *testing.T) {
	slow := func(_ http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body) // so that the server notices the end of the connection
		<-request.Context().Done()
	}
	t.Run("a response after the timeout: the job is retried", func(t *testing.T) {
		got := describeResult(forwardTo(t, 50*time.Millisecond, slow).handle(t.Context(), newJob()))
		require.True(t, strings.HasPrefix(got, "retry: "), "%v", got)
	})
	t.Run("connection refused: the job is snoozed", func(t *testing.T) {
		target := &url.URL{Scheme: "http", Host: ports.Reserve(t).String()}
		require.Equal(t, "snoozed", describeResult(newForwarder(target, time.Minute).handle(t.Context(), newJob())))
	})
	t.Run("the worker shuts down: the error of the context is returned", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, forwardTo(t, time.Minute, slow).handle(ctx, newJob()), context.Canceled)
	})
}

// The application ends when it gets a certain job, and with it all requests that it has. It starts again each time.
func TestAJobThatEndsTheApplicationBecomesTheOnlyDeadLetter(t *testing.T) {
	t.Parallel()
	const number = 100
	q, address := queuetest.Start(t, "orders"), ports.Reserve(t).String()
	for i := range number {
		payload := "innocent"
		if i == number/2 {
			payload = "poison"
		}
		q.Send(payload)
	}
	var crashes atomic.Int64
	go func() {
		for t.Context().Err() == nil {
			server := &http.Server{Addr: address, ReadHeaderTimeout: time.Minute}
			server.Handler = http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
				if payload, err := io.ReadAll(request.Body); err != nil || string(payload) == "poison" {
					crashes.Add(1)
					_ = server.Close()
				}
				time.Sleep(20 * time.Millisecond)
			})
			stop := context.AfterFunc(t.Context(), func() { _ = server.Close() })
			_ = server.ListenAndServe()
			stop()
		}
	}()
	stop := runCommand(t, q, io.Discard, "--forward", "http://"+address)
	q.WaitUntilEmpty()
	stop()
	letters := q.DeadLetters()
	isOnly := len(letters) == 1 && string(letters[0].Payload) == "poison" && letters[0].Attempts == 5
	require.True(t, isOnly && crashes.Load() == 5, "%d crashes, dead letters %+v", crashes.Load(), letters)
}

const quickstarts = "../../../examples/quickstart/"

// maxQuickstartLines bounds a quick start, without its imports and the comment of its package.
const maxQuickstartLines = 20

// Each quick start of docs/worker.md is short, does a job, makes a dead letter of an invalid one, and exits on SIGTERM.
func TestTheQuickStartOfEachLanguageRunsJobs(t *testing.T) {
	t.Parallel()
	for file, row := range map[string]struct {
		// command runs the program; without one, the worker does.
		command   []string
		isForward bool
	}{
		"worker.py":  {[]string{"python3", quickstarts + "worker.py"}, true},
		"worker.mjs": {[]string{"node", quickstarts + "worker.mjs"}, true},
		"worker.sh":  {},
		"go/main.go": {},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			requireShortAndDocumented(t, file)
			// A program writes a line in parts, so nothing else writes to jobs.
			q, jobs, log, address := queuetest.Start(t, "orders"), &output.Buffer{}, &output.Buffer{}, ports.Reserve(t).String()
			_, port, _ := net.SplitHostPort(address)
			switch {
			case row.isForward:
				startProgram(t, jobs, log, row.command, "PORT="+port)
				runCommand(t, q, log, "--forward", "http://"+address)
			case file == "go/main.go":
				program, config := filepath.Join(t.TempDir(), "worker"), filepath.Join(t.TempDir(), "worker.yaml")
				text, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./"+quickstarts+"go").CombinedOutput()
				require.True(t, err == nil, "%v: %s", err, text)
				require.NoError(t, os.WriteFile(config, []byte("broker: {url: "+q.URL+"}\nqueues: [{name: orders}]\nadminAddress: \"0\"\n"), 0o600))
				startProgram(t, jobs, log, []string{program}, "YARDMASTER_CONFIG_FILE="+config)
			default:
				runCommand(t, q, jobs, "--exec", "--", quickstarts+file)
			}
			q.SendWithHeaders(`{"id":7}`, nats.Header{"Nats-Msg-Id": {"order-7"}})
			q.Send("invalid")
			poll.Until(t, "both jobs to be settled", func() bool {
				stats := q.Stats()
				isDone := strings.Contains(strings.ReplaceAll(jobs.String(), `"id": 7`, `"id":7`), `job order-7 {"id":7}`)
				return isDone && stats.Ready+stats.InFlight == 0 && stats.DeadLetters == 1
			})
		})
	}
}

func requireShortAndDocumented(t *testing.T, file string) {
	t.Helper()
	code := require.Call(os.ReadFile(quickstarts + file)).Succeeds(t)
	docs := require.Call(os.ReadFile("../../../docs/worker.md")).Succeeds(t)
	text := string(code)
	if begin := strings.Index(text, "func main()"); begin > 0 {
		text = text[begin:]
	}
	require.True(t, strings.Contains(string(docs), text), "docs/worker.md does not contain %s", file)
	lines := strings.Count(text, "\n")
	require.True(t, lines <= maxQuickstartLines, "%s has %d lines, want at most %d", file, lines, maxQuickstartLines)
}

// startProgram starts a program, and at the end of the test requires that it exits on SIGTERM.
func startProgram(t *testing.T, output, log io.Writer, command []string, environment string) {
	t.Helper()
	program := exec.CommandContext(context.WithoutCancel(t.Context()), command[0], command[1:]...)
	program.Env = append(os.Environ(), environment)
	program.Stdout, program.Stderr = output, log
	require.NoError(t, program.Start())
	t.Cleanup(func() {
		_ = program.Process.Signal(syscall.SIGTERM)
		defer time.AfterFunc(time.Minute, func() { _ = program.Process.Kill() }).Stop()
		err := program.Wait()
		require.True(t, err == nil, "the program exited on SIGTERM with %v: %v%v", err, output, log)
	})
}

const (
	releaseJobs = 3
	// lateness is when an application that listens late does.
	lateness = 1500 * time.Millisecond
)

// What sidecars and commands report of an application with each defect, on a real server. TestReleasesOfEachRuntimeWithEachDefect of package
// workerpool has what the operator makes of it.
func TestAVersionTakesNoMessagesThatItCannotRun(t *testing.T) {
	t.Parallel()
	for _, runtime := range []string{"sidecar", "exec"} {
		for _, defect := range []string{"none", "never listens", "listens late", "refuses", "hangs", "crashes", "answers 500"} {
			t.Run(runtime+" "+defect, func(t *testing.T) {
				t.Parallel()
				q, admin := queuetest.Start(t, "orders"), ports.Reserve(t).String()
				for range releaseJobs {
					q.Send("x")
				}
				arguments := []string{"--broker-url", q.URL, "--queues", "orders", "--admin-address", admin, "--drain-timeout", "1ms"}
				if runtime == "sidecar" {
					arguments = append(arguments, "--forward", "http://"+startApplication(t, defect))
				} else {
					arguments = append(arguments, "--exec", "--", writeApplication(t, defect))
				}
				background.Run(t, func(ctx context.Context) error {
					_ = Run(ctx, arguments, io.Discard, io.Discard) // it is killed while jobs hang
					return nil
				})
				requireOutcome(t, q, admin, runtime, defect)
			})
		}
	}
}

func requireOutcome(t *testing.T, q *queuetest.Queue, admin, runtime, defect string) {
	t.Helper()
	client := workerclient.New()
	works, observations := defect == "none" || defect == "listens late", 0
	poll.Until(t, "what the worker reports", func() bool {
		stats, err := client.FetchStats(t.Context(), admin)
		if err != nil {
			return false
		}
		succeeded, failed, snoozed := ptr.Deref(stats.Succeeded, 0), ptr.Deref(stats.Failed, 0), ptr.Deref(stats.Snoozed, 0)
		isReady := ptr.Deref(stats.Attached, false)
		onBroker := q.Stats()
		left := onBroker.Ready + onBroker.InFlight + onBroker.Delayed + onBroker.DeadLetters // a failed job is retried later
		require.True(t, works || succeeded == 0 && left >= releaseJobs, "%d succeeded, %+v on the broker", succeeded, onBroker)
		switch {
		case works:
			return succeeded == releaseJobs && failed == 0 && left == 0 && isReady
		case runtime == "sidecar" && defect == "never listens":
			isIdle := stats.InFlight+stats.Prefetched+snoozed+failed == 0 && onBroker.Ready == releaseJobs && !isReady
			require.True(t, isIdle, "it takes messages: %+v, %+v", stats, onBroker)
			observations++
			return observations == 20 && stats.Unavailable != ""
		case runtime == "sidecar" && defect == "crashes":
			return stats.Unavailable != "" && !isReady && failed > 0 && stats.InFlight+stats.Prefetched == 0
		case defect == "never listens":
			return snoozed > 0 && failed == 0
		case defect == "hangs":
			return stats.InFlight == releaseJobs
		}
		return failed >= releaseJobs
	})
}

// startApplication starts an HTTP server with a defect, and returns its address.
func startApplication(t *testing.T, defect string) (address string) {
	t.Helper()
	address = ports.Reserve(t).String()
	ended := make(chan struct{})
	server := &http.Server{ReadHeaderTimeout: time.Minute}
	server.Handler = http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
		switch defect {
		case "hangs":
			<-ended
		case "answers 500":
			response.WriteHeader(http.StatusInternalServerError)
		case "crashes":
			go func() { _ = server.Close() }()
			<-ended
		}
	})
	var serving sync.WaitGroup
	t.Cleanup(func() { close(ended); _ = server.Close(); serving.Wait() })
	listen := func() {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Error(err)
			return
		}
		if defect == "refuses" {
			listener = refusingListener{listener}
		}
		serving.Go(func() { _ = server.Serve(listener) })
	}
	switch defect {
	case "never listens":
	case "listens late":
		timer := time.AfterFunc(lateness, listen)
		t.Cleanup(func() { timer.Stop() })
	default:
		listen()
	}
	return address
}

// refusingListener closes each connection that it accepts.
type refusingListener struct{ net.Listener }

func (l refusingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		_ = conn.Close()
	}
	return conn, err
}

// writeApplication writes a command with a defect, and returns its path. A command that does not "listen" cannot start.
func writeApplication(t *testing.T, defect string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "application")
	write := func(text string) {
		if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o700), os.Rename(path+".new", path)); err != nil {
			t.Error(err)
		}
	}
	const works, missing = "#!/bin/sh\nexec cat >/dev/null\n", "#!/no/such/interpreter\n"
	write(map[string]string{
		"none": works, "never listens": missing, "listens late": missing, "refuses": "#!/bin/sh\nexit 75\n", "hangs": "#!/bin/sh\nexec sleep 600\n",
		"crashes": "#!/bin/sh\nkill -9 $$\n", "answers 500": "#!/bin/sh\nexit 1\n",
	}[defect])
	if defect == "listens late" {
		timer := time.AfterFunc(lateness, func() { write(works) })
		t.Cleanup(func() { timer.Stop() })
	}
	return path
}

// pythonPod is the quick start in Python, behind a worker in a process of its own, as in a Pod with a sidecar.
type pythonPod struct {
	application, sidecar *exec.Cmd
	// done is the output of the application. It writes a line in parts, so each application has its own.
	done *output.Buffer
}

func startPythonPod(t *testing.T, q *queuetest.Queue) *pythonPod {
	t.Helper()
	done, address := &output.Buffer{}, ports.Reserve(t).String()
	_, port, _ := net.SplitHostPort(address)
	start := func(program string, arguments []string, out io.Writer, environment string) *exec.Cmd {
		c := exec.CommandContext(context.WithoutCancel(t.Context()), program, arguments...)
		c.Env, c.Stdout, c.Stderr = append(os.Environ(), "YARDMASTER_QUEUES=orders", environment), out, io.Discard
		require.NoError(t, c.Start())
		return c
	}
	return &pythonPod{
		start("python3", []string{quickstarts + "worker.py"}, done, "PORT="+port),
		start(os.Args[0], []string{"-test.run", "^TestNoJobOfAPythonWorkerIsLost$"}, io.Discard, "YARDMASTER_TEST_WORKER="+
			"--broker-url "+q.URL+" --queues orders --concurrency 5 --admin-address 0 --log-level error --forward http://"+address),
		done,
	}
}

// end sends a signal to the processes, one after another.
func (*pythonPod) end(signal syscall.Signal, processes ...*exec.Cmd) {
	for _, c := range processes {
		_ = c.Process.Signal(signal)
		_ = c.Wait()
	}
}

// Two Pods with the quick start in Python run jobs, while their processes are killed, and replaced as in a rollout.
func TestNoJobOfAPythonWorkerIsLost(t *testing.T) {
	if arguments := os.Getenv("YARDMASTER_TEST_WORKER"); arguments != "" {
		_ = Run(t.Context(), strings.Fields(arguments), io.Discard, io.Discard)
		return
	}
	t.Parallel()
	jobs := testbuilder.NumberFromEnv(t, "LOSS_JOBS", 100)
	q := queuetest.Start(t, "orders")
	pods := []*pythonPod{startPythonPod(t, q), startPythonPod(t, q)}
	all := slices.Clone(pods)
	defer func() {
		for _, p := range pods {
			p.end(syscall.SIGKILL, p.sidecar, p.application)
		}
	}()
	sending := sync.WaitGroup{}
	defer sending.Wait()
	sending.Go(func() {
		for i := range jobs {
			q.SendWithHeaders(`{"id": 1}`, nats.Header{"Yardmaster-Job-Id": {"job-" + strconv.Itoa(i)}})
			_ = clock.SleepContext(t.Context(), 30*time.Millisecond)
		}
	})
	disturbances := map[string]int{}
	poll.Until(t, "all jobs to be settled", func() bool {
		_ = clock.SleepContext(t.Context(), time.Duration(300+rand.IntN(1500))*time.Millisecond)
		stats := q.Stats()
		if stats.TotalArrivals == uint64(jobs) && stats.Ready+stats.InFlight+stats.Delayed == 0 {
			return true
		}
		if stats.TotalArrivals == uint64(jobs) && stats.Ready == 0 {
			return false // the leases of lost jobs expire
		}
		i := rand.IntN(len(pods))
		victim := pods[i]
		pods[i] = startPythonPod(t, q)
		all = append(all, pods[i])
		kind := []string{"application killed", "worker killed", "rollout"}[rand.IntN(3)]
		switch kind {
		case "application killed": // and after it the worker, which has given its jobs back
			victim.end(syscall.SIGKILL, victim.application)
			victim.end(syscall.SIGTERM, victim.sidecar)
		case "worker killed":
			victim.end(syscall.SIGKILL, victim.sidecar, victim.application)
		case "rollout":
			victim.end(syscall.SIGTERM, victim.sidecar, victim.application)
		}
		disturbances[kind]++
		return false
	})
	runs := map[string]int{}
	for _, p := range all {
		for _, id := range regexp.MustCompile(`job-\d+`).FindAllString(p.done.String(), -1) {
			runs[id]++
		}
	}
	repeated := 0
	for i := range jobs {
		switch n := runs["job-"+strconv.Itoa(i)]; {
		case n == 0:
			t.Errorf("job %d is lost", i)
		case n > 1:
			repeated++
		}
	}
	require.Equal(t, 0, q.Stats().DeadLetters)
	t.Logf("%d jobs, %v: %d ran more than once", jobs, disturbances, repeated)
}
