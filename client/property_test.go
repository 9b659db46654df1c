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
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
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
	require.NoError(k.t, err)
}

// history is what handlers have written about each job.
func readHistory(t testing.TB, log string) map[string][]string {
	t.Helper()
	raw := require.Call(os.ReadFile(log)).Succeeds(t)
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

// keyPlans are those of jobs that always end.
var keyPlans = []string{"", "0s", "50ms", "300ms", "dead", "flaky"}

func (r *randomRound) keyPlan() []byte { return []byte(keyPlans[r.random.IntN(len(keyPlans))]) }

// uniqueKeys is the number of keys in a round.
const uniqueKeys = 12

func uniqueKey(number int) string { return fmt.Sprintf("key/%d", number) }

// enqueueUnique sends unique jobs, with and without an ID. It repeats a call with an ID whose result is unknown.
func (r *randomRound) enqueueUnique(number int) {
	for range number {
		key := uniqueKey(r.random.IntN(uniqueKeys))
		options := []Option{Unique(key)}
		hasID := r.random.IntN(2) == 0
		if hasID {
			options = append(options, ID(fmt.Sprintf("unique.%d", r.uniqueCalls)))
		}
		r.uniqueCalls++
		for range 10 {
			ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
			receipt, err := r.Enqueue(ctx, "orders", r.keyPlan(), options...)
			cancel()
			if err == nil {
				r.requireAcceptable(receipt.ID, key)
			}
			if !hasID || !IsRetryable(err) {
				break
			}
		}
	}
}

// requireAcceptable checks that no other accepted job has the key.
func (r *randomRound) requireAcceptable(id, key string) {
	history := readHistory(r.t, r.log)
	for other, taken := range r.accepted {
		if taken == key && other != id && !hasEnded(history[other]) {
			r.t.Errorf("%s was accepted while %s has the key %s: %q", id, other, key, history[other])
		}
	}
	r.accepted[id] = key
}

// hasEnded reports whether a handler has decided about a job.
func hasEnded(events []string) bool {
	return slices.ContainsFunc(events, func(event string) bool { return event == "dead" || strings.HasPrefix(event, "done ") })
}

// requireUnique checks, when nothing runs any more, that all accepted jobs ran, that no two with a key ran at the same time,
// and that all keys are free.
func (r *randomRound) requireUnique() {
	history := readHistory(r.t, r.log)
	for id := range r.accepted {
		require.True(r.t, hasEnded(history[id]), "%s was accepted, and has not ended: %q", id, history[id])
	}
	for number := range uniqueKeys {
		value, _, err := r.producer.(broker.KeyStore).ReadKey(r.t.Context(), "orders", broker.Key{Kind: broker.UniqueKey, Name: uniqueKey(number)})
		lock := jobstate.DecodeLock(value)
		require.True(r.t, err == nil && (lock == nil || !lock.Confirmed), "the key %d is taken, %v: %+v", number, err, lock)
	}
	raw := require.Call(os.ReadFile(r.log)).Succeeds(r.t)
	starts := requireExclusive(r, strings.Split(string(raw), "\n"))
	r.t.Logf("%d unique jobs of %d calls were accepted, with %d attempts", len(r.accepted), r.uniqueCalls, starts)
}

// requireExclusive returns the number of attempts. A worker that is killed no longer runs its jobs.
func requireExclusive(r *randomRound, log []string) (starts int) {
	const withKey, withProcess = 4, 3
	running := map[string]map[string]string{} // the processes of the jobs of each key
	for _, line := range log {
		words := strings.Fields(line)
		switch {
		case len(words) == withKey && words[1] == "start":
			key := words[3]
			if running[key] == nil {
				running[key] = map[string]string{}
			}
			running[key][words[0]] = words[2]
			starts++
			require.True(r.t, len(running[key]) <= 1, "jobs with the key %s run at the same time: %v", key, running[key])
		case len(words) == withProcess && words[1] == "end":
			for _, jobs := range running {
				delete(jobs, words[0])
			}
		case len(words) == withProcess && words[1] == "killed":
			for _, jobs := range running {
				for id, process := range jobs {
					if process == words[2] {
						delete(jobs, id)
					}
				}
			}
		}
	}
	return starts
}

// randomBatch is a batch whose producer may have died.
type randomBatch struct {
	id    string
	total int
	// isSent: EnqueueBatch has succeeded.
	isSent bool
}

// enqueueBatch sends a batch. It repeats the call until it succeeds, or sends a part of the jobs only.
func (r *randomRound) enqueueBatch(total int) {
	b := &randomBatch{id: fmt.Sprintf("batch.%d", len(r.batches)), total: total}
	r.batches = append(r.batches, b)
	var jobs []Job
	for range total {
		jobs = append(jobs, NewJob(r.keyPlan()))
	}
	final := NewJob(nil, ID(b.id))
	if r.random.IntN(4) == 0 {
		r.enqueuePart(jobs, final)
		return
	}
	poll.Until(r.t, b.id+" to be stored", func() bool {
		ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
		defer cancel()
		_, err := r.EnqueueBatch(ctx, "orders", jobs, final)
		require.True(r.t, err == nil || errors.Is(err, ErrUnavailable), "%v", err)
		b.isSent = err == nil
		return b.isSent
	})
}

// enqueuePart does what a producer does that dies before it has sent the final job.
func (r *randomRound) enqueuePart(jobs []Job, final Job) {
	b := require.Call(r.newBatch("orders", jobs, final)).Succeeds(r.t)
	if _, err := r.openBatch(r.t.Context(), b); err == nil {
		_, _ = r.EnqueueMany(r.t.Context(), "orders", b.jobs[:r.random.IntN(len(b.jobs)+1)])
	}
}

// requireBatches checks, when nothing runs any more, that the final job of each complete batch ran after all others had
// ended, and that of an incomplete one did not run.
func (r *randomRound) requireBatches() {
	raw := require.Call(os.ReadFile(r.log)).Succeeds(r.t)
	history, sent := readHistory(r.t, r.log), 0
	for _, b := range r.batches {
		info, err := r.Batch(r.t.Context(), "orders", b.id)
		wasStarted := len(history[b.id]) > 0
		if !b.isSent {
			if err != nil || info.State == BatchDone || info.State == BatchRunning || wasStarted {
				r.t.Errorf("%s is %+v, %v, and its producer died: %q", b.id, info, err, history[b.id])
			}
			continue
		}
		sent++
		isDone := err == nil && info.State == BatchDone && info.Ended == b.total && hasEnded(history[b.id])
		require.True(r.t, isDone, "%s is %+v, %v: %q", b.id, info, err, history[b.id])
		before, _, _ := strings.Cut("\n"+string(raw), "\n"+b.id+" start")
		for number := range b.total {
			id := fmt.Sprintf("\n%s:%d ", b.id, number)
			hasEnded := strings.Contains(before, id+"dead") || strings.Contains(before, id+"done")
			require.True(r.t, hasEnded, "the final job of %s started before number %d had ended", b.id, number)
		}
	}
	r.t.Logf("%d batches, %d of them complete", len(r.batches), sent)
}
