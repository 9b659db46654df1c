package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/worker"
)

// The environment variables of the worker process of TestNoStateIsClaimedThatIsNotTrue.
const (
	envWorkerURL = "YARDMASTER_TEST_WORKER_URL"
	envWorkerLog = "YARDMASTER_TEST_WORKER_LOG"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(envWorkerURL); url != "" {
		if err := runWorkerProcess(url, os.Getenv(envWorkerLog)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runWorkerProcess runs a worker until the process is killed. Its handlers do what the payload says, and write that to a
// log, which survives the process.
func runWorkerProcess(url, log string) error {
	file, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	write := func(job *worker.Job, event, detail string) {
		_, _ = fmt.Fprintf(file, "%s %s %s\n", job.ID, event, detail) // one write, so lines are whole
	}
	mux := worker.NewMux()
	process := strconv.Itoa(os.Getpid())
	mux.HandleUnknown(func(ctx context.Context, job *worker.Job) error {
		write(job, "start", process+" "+broker.HeaderValue(job.Headers, broker.UniqueHeader))
		defer write(job, "end", process)
		switch plan := string(job.Payload); plan {
		case "hang": // until its timeout, or its cancellation
			<-ctx.Done()
			return ctx.Err()
		case "dead":
			write(job, "dead", "")
			return worker.DeadLetter("dead")
		case "flaky":
			if job.Attempt == 1 {
				return errors.New("flaky")
			}
		default:
			if pause, err := time.ParseDuration(plan); err == nil {
				select {
				case <-time.After(pause):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		token := strconv.FormatUint(rand.Uint64(), 36)
		write(job, "done", token)
		return job.SetResult(token)
	})
	w, err := mux.NewWorker(worker.Options{
		Logger: slog.New(slog.DiscardHandler),
		Config: worker.Config{
			Broker: worker.BrokerConfig{URL: url}, AdminAddress: "0", Concurrency: 50,
			Queues: []worker.QueueConfig{{
				Name: "orders", Lease: worker.Duration(broker.MinLease), Results: &worker.ResultsConfig{Retention: worker.Duration(time.Hour)},
				Retry: &worker.RetryPolicy{MaxAttempts: new(20), InitialDelay: new(worker.Duration(10 * time.Millisecond)), MaxDelay: new(worker.Duration(time.Second))},
			}},
		},
	})
	if err != nil {
		return err
	}
	return w.Run(context.Background())
}

// killedWorkers are worker processes that are killed and started again.
type killedWorkers struct {
	t         *testing.T
	url, log  string
	processes []*exec.Cmd
}

func (k *killedWorkers) start(number int) {
	k.t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), envWorkerURL+"="+k.url, envWorkerLog+"="+k.log)
	command.Stderr = os.Stderr
	require.NoError(k.t, command.Start())
	k.processes[number] = command
}

func (k *killedWorkers) kill(number int) {
	k.t.Helper()
	_ = k.processes[number].Process.Kill()
	_ = k.processes[number].Wait()
	file, err := os.OpenFile(k.log, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = fmt.Fprintf(file, "worker killed %d\n", k.processes[number].Process.Pid)
		_ = file.Close()
	}
	if err != nil {
		k.t.Error(err)
	}
}

// history is what handlers have written about each job.
func readHistory(t testing.TB, log string) map[string][]string {
	t.Helper()
	raw, err := os.ReadFile(log)
	require.NoError(t, err)
	events := map[string][]string{}
	for line := range strings.SplitSeq(string(raw), "\n") {
		if id, event, found := strings.Cut(line, " "); found {
			events[id] = append(events[id], strings.TrimSpace(event))
		}
	}
	return events
}

var plans = []string{"", "", "0s", "50ms", "300ms", "2s", "hang", "dead", "flaky", "flaky"}

// TestNoStateIsClaimedThatIsNotTrue runs jobs that succeed, fail, hang until their timeout or are canceled, while worker
// processes are killed and the server is restarted, and compares each state with what the handlers did. Meanwhile, it sends
// unique jobs and batches. JOB_RUNS is the number of other jobs.
func TestNoStateIsClaimedThatIsNotTrue(t *testing.T) {
	t.Parallel()
	const jobsPerRound = 100
	for left := testbuilder.NumberFromEnv(t, "JOB_RUNS", 300); left > 0; left -= jobsPerRound {
		seed, jobs := rand.Uint64(), min(left, jobsPerRound)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			runRandomJobs(t, seed, jobs)
		})
	}
}

// randomRound is one server with its workers and jobs.
type randomRound struct {
	*testEnv

	random *rand.Rand
	log    string
	plans  map[string]string
	// canceled jobs, and those whose cancellation was requested without an answer.
	canceled map[string]bool
	// uniqueCalls counts calls with a unique job. accepted has the keys of those that succeeded, by the ID of the job.
	uniqueCalls int
	accepted    map[string]string
	batches     []*randomBatch
}

func runRandomJobs(t *testing.T, seed uint64, jobs int) {
	env := newTestEnv(t, dial.NATSEngine, withResults, func(q *broker.QueueConfig) { q.Lease = broker.MinLease })
	r := &randomRound{
		testEnv: env, random: rand.New(rand.NewPCG(seed, seed)), log: filepath.Join(t.TempDir(), "log"),
		plans: map[string]string{}, canceled: map[string]bool{}, accepted: map[string]string{},
	}
	require.NoError(t, os.WriteFile(r.log, nil, 0o600)) // it is read before a worker has started
	workers := &killedWorkers{t: t, url: env.options.Broker.URL, log: r.log, processes: make([]*exec.Cmd, 2)}
	for number := range workers.processes {
		workers.start(number)
	}
	defer func() {
		for number := range workers.processes {
			workers.kill(number)
		}
	}()
	r.enqueueAll(jobs)
	for range 4 + r.random.IntN(4) {
		r.observeSome(20)
		r.enqueueUnique(jobs / 50)
		r.enqueueBatch(1 + r.random.IntN(jobs/20))
		number := r.random.IntN(len(workers.processes))
		workers.kill(number)
		if r.random.IntN(3) == 0 {
			env.Server.Restart()
		}
		workers.start(number)
	}
	left := jobs / 5
	poll.Until(t, "the queue to be empty", func() bool {
		r.observeSome(5)
		stats, err := env.Engine.Stats(t.Context(), "orders")
		if err == nil && left > 0 && stats.Ready < 5 { // keys change their jobs often now
			left--
			if left%20 == 0 {
				number := r.random.IntN(len(workers.processes))
				workers.kill(number)
				workers.start(number)
			}
			r.enqueueUnique(1)
			return false
		}
		return err == nil && stats.Ready+stats.InFlight+stats.Delayed == 0
	})
	r.requireTruth()
	r.requireUnique()
	r.requireBatches()
}

// enqueueAll retries with the same ID until the job is stored.
func (r *randomRound) enqueueAll(jobs int) {
	for number := range jobs {
		id, plan := fmt.Sprintf("job.%d", number), plans[r.random.IntN(len(plans))]
		r.plans[id] = plan
		options := []Option{ID(id)}
		if plan == "hang" {
			options = append(options, Timeout(time.Second))
		}
		if r.random.IntN(4) == 0 {
			options = append(options, Track())
		}
		poll.Until(r.t, "the job to be stored", func() bool {
			_, err := r.Enqueue(r.t.Context(), "orders", []byte(plan), options...)
			return err == nil
		})
	}
}

// observeSome reads the states of random jobs, and cancels some of them.
func (r *randomRound) observeSome(number int) {
	for range number {
		id := fmt.Sprintf("job.%d", r.random.IntN(len(r.plans)))
		if r.random.IntN(8) == 0 {
			r.canceled[id] = true // also if the answer is lost
			_, _ = r.Cancel(r.t.Context(), "orders", id)
		}
		info, err := r.Job(r.t.Context(), "orders", id)
		if err != nil {
			continue // the server restarts
		}
		r.requirePlausible(&info)
	}
}

// requirePlausible checks a state against what the handlers have written until now.
func (r *randomRound) requirePlausible(info *JobInfo) {
	history := readHistory(r.t, r.log)[info.ID]
	started, isDead, succeeded := false, false, map[string]bool{}
	for _, event := range history {
		token, isDone := strings.CutPrefix(event, "done ")
		succeeded[token] = succeeded[token] || isDone
		started, isDead = started || strings.HasPrefix(event, "start"), isDead || event == "dead"
	}
	var result string
	switch info.State {
	case StateDone:
		err := json.Unmarshal(info.Result, &result)
		require.True(r.t, err == nil && succeeded[result], "%s is done with %s, %v: %q", info.ID, info.Result, err, history)
	case StateDead:
		require.True(r.t, isDead || info.Attempt >= 20, "%+v is dead: %q", info, history)
	case StateCanceled:
		require.True(r.t, r.canceled[info.ID], "%s is canceled, and nobody requested that: %q", info.ID, history)
	case StateRunning, StateRetrying:
		require.True(r.t, started, "%s is %s, and was not started: %q", info.ID, info.State, history)
	case StateWaiting, StateUnknown:
	}
}

// requireTruth checks all states when nothing runs any more.
func (r *randomRound) requireTruth() {
	states := map[State]int{}
	history := readHistory(r.t, r.log)
	for id, plan := range r.plans {
		var info JobInfo
		poll.Until(r.t, id+" to end", func() bool {
			var err error
			info, err = r.Job(r.t.Context(), "orders", id)
			return err == nil && info.State != StateRunning
		})
		r.requirePlausible(&info)
		states[info.State]++
		succeeded := strings.Contains(strings.Join(history[id], ","), "done ")
		switch {
		case info.State == StateWaiting || info.State == StateRetrying:
			r.t.Errorf("%s is %s, and the queue is empty", id, info.State)
		case succeeded && info.State == StateUnknown:
			r.t.Errorf("%s has succeeded, and its result is lost: %q", id, history[id])
		case !r.canceled[id] && plan != "hang" && plan != "dead" && info.State != StateDone:
			r.t.Errorf("%s with the plan %q is %s: %q", id, plan, info.State, history[id])
		}
	}
	r.t.Logf("%d jobs: %v", len(r.plans), states)
}
