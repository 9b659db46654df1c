package workercommand

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/output"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

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
		c.Env, c.Stdout, c.Stderr = append(os.Environ(), environment), out, io.Discard
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
