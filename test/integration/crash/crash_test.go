// Package crash tests sequences and queues while the operator is killed repeatedly. It
// needs the KUBECONFIG of a real API server, and no other operator may run there.
package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/test/testenv"
)

var cluster *testenv.Cluster

// TestMain lets operators, which start once a second, collect garbage as often as other programs: they save memory otherwise.
func TestMain(m *testing.M) {
	if err := os.Setenv("GOGC", "100"); err != nil {
		panic(err)
	}
	testenv.Main(m, "make test-integration", testenv.WithCRDs(&cluster))
}

// The operator is killed about every second while it runs sequences of three steps, many with other options. Every step must
// run exactly once, after the previous step has ended; one that fails as often as its retries say. CRASH_SEQUENCES sets the
// number of sequences.
func TestNoStepIsRepeatedOrSkippedWhileTheOperatorIsKilledEverySecond(t *testing.T) {
	sequences := testbuilder.NumberFromEnv(t, "CRASH_SEQUENCES", 20)
	ns := cluster.NewNamespace(t, "crash-", nil)
	journal := record(t, ns)
	end := runOperators(t, 1, time.Second, false, "--namespaces", ns)
	for i := range sequences {
		require.NoError(t, cluster.Create(t.Context(), sequenceNumber(i, ns)))
	}
	waitUntilAllCompleted(t, ns, sequences)
	t.Logf("%d sequences completed with %d operators", sequences, len(end()))
	journal.check(t, ns)
}

func sequenceNumber(i int, ns string) *v1alpha1.SequentialJob {
	b := testbuilder.SequentialJob(fmt.Sprintf("s%03d", i), ns).Step("a").Step("b", testbuilder.RecordOutput()).Step("c")
	switch i % 10 {
	case 1:
		b = b.Step("skipped", testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.When = `steps.a.phase == "Failed"` }))
	case 2:
		b = b.Workspace(v1alpha1.WorkspaceDelete)
	case 3, 4:
		b = b.Step(lateStep, testbuilder.ContinueOnFailure(), testbuilder.WithStepOptions(failTwice)).Step("d")
	}
	if i%3 == 0 {
		b = b.Finally("clean")
	}
	sj := b.Obj()
	sj.ObjectMeta = metav1.ObjectMeta{Name: sj.Name, Namespace: ns}
	if i%4 == 0 {
		sj.Spec.JobHistoryLimit = new(int32(1))
	}
	if i%5 == 0 {
		sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "DATE", Value: "2026-01-01"}}
	}
	return sj
}

// lateStep is the name of a step that exceeds its deadline in each of two attempts.
const lateStep = "late"

func failTwice(options *v1alpha1.StepOptions) {
	options.ActiveDeadlineSeconds = new(int64(1))
	options.Retry = &v1alpha1.StepRetry{Retry: v1alpha1.Retry{Limit: new(int32(1)), Backoff: &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Second}}}}
	options.PodTemplate = &runtime.RawExtension{Raw: []byte(`{"metadata": {"annotations": {"sim.localcluster.dev/duration": "1h"}}}`)}
}

func buildOperator(t *testing.T) (binary string) {
	t.Helper()
	return require.Call(testenv.BuildOperator()).Succeeds(t)
}

// runOperators runs a number of operators at any time, each for about this time. Then it is killed, or every second one stops, and the
// next takes over. The returned function ends all, and returns their logs.
func runOperators(t *testing.T, number int, lifetime time.Duration, someStop bool, flags ...string) (end func() (logs []string)) {
	t.Helper()
	binary := buildOperator(t)
	ctx, stop := context.WithCancel(t.Context())
	logs := make(chan []string, number)
	for range number {
		go func() {
			var files []string
			defer func() { logs <- files }()
			for {
				operator, err := testenv.StartOperator(ctx, binary, cluster, flags...)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				files = append(files, operator.LogFile)
				select {
				case <-operator.Exited():
					if ctx.Err() == nil { // the end of ctx kills the operator
						t.Errorf("the operator ended by itself: %v; its log is %s", operator.State(), operator.LogFile)
					}
					return
				case <-time.After(lifetime/2 + rand.N(lifetime)):
				}
				if someStop && len(files)%2 == 0 {
					operator.Stop()
				} else {
					operator.Kill()
				}
			}
		}()
	}
	return func() (all []string) {
		stop()
		for range number {
			all = append(all, <-logs...)
		}
		return all
	}
}

func waitUntilAllCompleted(t *testing.T, ns string, sequences int) {
	t.Helper()
	poll.Until(t, fmt.Sprintf("%d sequences to complete in %s", sequences, ns), func() bool {
		var list v1alpha1.SequentialJobList
		require.NoError(t, cluster.List(t.Context(), &list, client.InNamespace(ns)))
		completed := 0
		for i := range list.Items {
			sj := &list.Items[i]
			require.True(t, sj.Status.Phase != v1alpha1.PhaseFailed, "%s failed: %+v", sj.Name, sj.Status.Conditions)
			if sj.Status.Phase == v1alpha1.PhaseCompleted {
				completed++
			}
		}
		return completed == sequences
	})
}

// journal has the history of each sequence's Jobs, when they are created and end, in the order of the API server: a watch delivers all
// changes of one resource in order.
type journal struct {
	mu      sync.Mutex
	history map[string]string
	entries int
}

func record(t *testing.T, ns string) *journal {
	t.Helper()
	events := require.Call(cluster.Watch(t.Context(), &batchv1.JobList{}, client.InNamespace(ns))).Succeeds(t)
	j := &journal{history: map[string]string{}}
	ended := map[types.UID]bool{}
	go func() {
		for event := range events.ResultChan() {
			job, ok := event.Object.(*batchv1.Job)
			isNew := event.Type == watch.Added
			if !ok || !isNew && (!sequentialjob.IsTerminal(job) || ended[job.UID]) {
				continue
			}
			what := "created "
			if !isNew {
				what, ended[job.UID] = "ended ", true
			}
			j.mu.Lock()
			j.history[job.OwnerReferences[0].Name] += what + job.Labels[v1alpha1.LabelStep] + "; "
			j.entries++
			j.mu.Unlock()
		}
	}()
	t.Cleanup(events.Stop)
	return j
}

// check checks that each sequence had one Job for each attempt that a step should have, in the order of the spec, and
// that each Job was created after the previous one had ended.
func (j *journal) check(t *testing.T, ns string) {
	t.Helper()
	var list v1alpha1.SequentialJobList
	require.NoError(t, cluster.List(t.Context(), &list, client.InNamespace(ns)))
	want, wantEntries := map[string]string{}, 0
	for i := range list.Items {
		sj := &list.Items[i]
		succeeded, counted := 0, 0
		for _, step := range sj.Status.Steps {
			attempts, phase := 1, v1alpha1.StepSucceeded
			switch step.Name {
			case "skipped":
				attempts, phase = 0, v1alpha1.StepSkipped
			case lateStep:
				attempts, phase = 2, v1alpha1.StepFailed
			}
			want[sj.Name] += strings.Repeat("created "+step.Name+"; ended "+step.Name+"; ", attempts)
			wantEntries += 2 * attempts
			require.True(t, step.Phase == phase, "%s: step %s is %s, want %s", sj.Name, step.Name, step.Phase, phase)
			if sequentialjob.IsFinally(&sj.Spec, step.Name) || phase == v1alpha1.StepSkipped {
				continue
			}
			counted++
			if phase == v1alpha1.StepSucceeded {
				succeeded++
			}
		}
		if display := fmt.Sprintf("%d/%d", succeeded, counted); sequentialjob.FormatProgress(sj, false) != display {
			t.Errorf("%s: progress %s, want %s", sj.Name, sequentialjob.FormatProgress(sj, false), display)
		}
	}
	poll.Until(t, "the watch to deliver all changes", func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.entries >= wantEntries
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	assert.Equal(t, "Jobs", want, j.history)
}

// objectsOfEach is the number of SequentialJobs, AgenticSessions, Queues, WorkerPools and Schedules in each of the two namespaces of
// TestTheLogHasNoErrorsThatNeedNobody: 200 objects.
const objectsOfEach = 20

// 200 objects of five kinds are created, and changed by a user all the time, while one operator after another is killed or stopped and
// the next takes over. Then one of the two namespaces is deleted. An error in their logs would be something that somebody has to do
// something about, and nobody has.
func TestTheLogHasNoErrorsThatNeedNobody(t *testing.T) {
	kept, removed := cluster.NewNamespace(t, "log-", nil), cluster.NewNamespace(t, "log-", nil)
	url := natstest.Start(t).ClientURL()
	end := runOperators(t, 1, 3500*time.Millisecond, true, "--namespaces", kept+","+removed)
	for _, ns := range []string{kept, removed} {
		createObjects(t, ns, url)
	}
	changed := 0
	poll.Until(t, "the sequences to complete", func() bool {
		var list v1alpha1.SequentialJobList
		require.NoError(t, cluster.List(t.Context(), &list, client.InNamespace(kept)))
		completed := 0
		for i := range list.Items {
			// The others are those of Schedules.
			if len(list.Items[i].OwnerReferences) == 0 && list.Items[i].Status.Phase == v1alpha1.PhaseCompleted {
				completed++
			}
			changed++
			if changed%10 > 0 {
				continue
			}
			note := fmt.Sprintf(`{"metadata": {"annotations": {"example.com/note": "%d"}}}`, changed)
			require.NoError(t, cluster.Patch(t.Context(), &list.Items[i], client.RawPatch(types.MergePatchType, []byte(note))))
		}
		return completed == objectsOfEach
	})
	require.NoError(t, cluster.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: removed}}))
	// The Pods of a namespace that is being deleted stay until a kubelet reports their end, and so do workers.
	poll.Until(t, "the sequences to be deleted", func() bool {
		var list v1alpha1.SequentialJobList
		require.NoError(t, cluster.List(t.Context(), &list, client.InNamespace(removed)))
		return len(list.Items) == 0
	})
	lines, files := 0, end()
	for _, file := range files {
		lines += checkLog(t, file)
	}
	t.Logf("%d operators wrote %d lines", len(files), lines)
	cluster.RemoveFinalizers(t, kept, "Queue", "WorkerPool")
}

func createObjects(t *testing.T, ns, broker string) {
	t.Helper()
	secret := testbuilder.BrokerSecret(ns, "broker", "url", broker)
	runner := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: ns}}
	runner.Spec.Image, testbuilder.RunnerPod(&runner.Spec).SecurityContext.RunAsUser = "runner:1", new(int64(65532))
	objects := []client.Object{secret, runner}
	for i := range objectsOfEach {
		name := metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("n%02d", i)}
		session := &v1alpha1.AgenticSession{ObjectMeta: name}
		session.Spec.Prompt, session.Spec.Interactive = "hello", true
		queue := &v1alpha1.Queue{ObjectMeta: name}
		queue.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
		queue.Spec.Broker.URLSecretRef.Name = secret.Name
		pool := &v1alpha1.WorkerPool{ObjectMeta: name}
		pool.Spec.Image, pool.Spec.Replicas, pool.Spec.Queues = "worker:1", new(int32(i%2)), []v1alpha1.PoolQueue{{LocalReference: v1alpha1.LocalReference{Name: name.Name}}}
		schedule := &v1alpha1.Schedule{ObjectMeta: name}
		schedule.Spec.Schedule = "0 0 1 1 *"
		schedule.Spec.SequentialJob = &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: []byte(`{"containers": [{"name": "a", "image": "a:1"}]}`)}}
		objects = append(objects, testbuilder.SequentialJob(name.Name, ns).Step("a").Step("b").Step("c").Obj(), session, queue, pool, schedule)
	}
	for _, object := range objects {
		require.NoError(t, cluster.Create(t.Context(), object))
	}
}

// checkLog checks that each line is JSON, and none of them an error. It returns the number of lines.
func checkLog(t *testing.T, file string) (lines int) {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range bytes.Lines(raw) {
		lines++
		var entry struct{ Level, Msg string }
		switch err := json.Unmarshal(line, &entry); {
		case err != nil && !bytes.HasSuffix(line, []byte("\n")):
			// The operator was killed while it wrote the line.
		case err != nil || entry.Level == "" || entry.Msg == "":
			t.Errorf("%s: a line is not JSON: %s", file, line)
		case entry.Level == "error":
			t.Errorf("%s: %s", file, line)
		}
	}
	return lines
}

// An operator starts that may read one of three namespaces: somebody has deleted its RoleBinding in the second, and the third. It works
// in the first, and in the second when it may.
func TestANamespaceThatCannotBeReadStopsNoOther(t *testing.T) {
	readable, refused := cluster.NewNamespace(t, "readable-", nil), cluster.NewNamespace(t, "refused-", nil)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: readable}}
	role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	require.NoError(t, cluster.Create(t.Context(), role))
	t.Cleanup(func() { require.NoError(t, cluster.Delete(context.WithoutCancel(t.Context()), role)) })
	_, kubeconfig := cluster.StartProxy(t, "", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		r.Header.Set("Impersonate-User", role.Name)
		next.ServeHTTP(w, r)
	}, nil)
	grant := func(ns string) {
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name, Namespace: ns}}
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}
		binding.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: role.Name}}
		require.NoError(t, errors.Join(cluster.Create(t.Context(), binding), cluster.Create(t.Context(), sequenceNumber(0, ns))))
	}
	grant(readable)
	operator := require.Call(testenv.StartOperator(t.Context(), buildOperator(t), &testenv.Cluster{Kubeconfig: kubeconfig},
		append(testenv.MetricsFlags(), "--namespaces", readable+","+refused+",missing", "--cluster-id", readable)...)).Succeeds(t)
	defer operator.Stop()
	metric := regexp.MustCompile(`(?m)^yardmaster_watch_refused{namespace="(.*)"}`)
	expect := func(completed string, want ...string) {
		waitUntilAllCompleted(t, completed, 1)
		poll.Until(t, fmt.Sprintf("the operator to be refused only in %q", want), func() bool {
			var got []string
			for _, match := range metric.FindAllSubmatch(require.Call(operator.Metrics(t.Context())).Succeeds(t), -1) {
				got = append(got, string(match[1]))
			}
			return slices.Equal(want, got)
		})
	}
	expect(readable, "missing", refused)
	grant(refused)
	expect(refused, "missing")
}

// What keeps the operator from starting is a line of its log, too.
func TestAnErrorAtTheStartIsALineOfTheLog(t *testing.T) {
	binary := buildOperator(t)
	for title, row := range map[string]struct {
		flags, environment []string
		want               string
	}{
		"a flag that does not exist":     {[]string{"--concurrencyy=3"}, nil, "concurrencyy"},
		"an invalid value":               {[]string{"--concurrency=many"}, nil, "concurrency"},
		"a variable that does not exist": {nil, []string{"YARDMASTER_DENY_CIDR=10.0.0.0/8"}, "YARDMASTER_DENY_CIDR"},
		"no cluster":                     {nil, []string{"KUBECONFIG=/dev/null/missing"}, "loading config file"},
		"a cluster that does not answer": {[]string{"--leader-elect=false", "--webhook=false"}, []string{"KUBECONFIG=" + unreachable(t)}, "connection refused"},
	} {
		t.Run(title, func(t *testing.T) {
			command := exec.CommandContext(t.Context(), binary, row.flags...)
			command.Env = append(os.Environ(), row.environment...)
			output, err := command.CombinedOutput()
			require.True(t, err != nil, "the operator started")
			type entry struct{ Level, Msg, Error string }
			var last entry
			for line := range bytes.Lines(output) {
				last = entry{}
				err := json.Unmarshal(line, &last)
				require.True(t, err == nil && last.Msg != "", "a line is not JSON: %s", line)
			}
			require.True(t, last.Level == "error" && strings.Contains(last.Error, row.want), "the last line is %+v", last)
		})
	}
}

// unreachable returns a kubeconfig of a cluster that does not answer.
func unreachable(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/kubeconfig"
	content := `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
		"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]}`
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

const (
	queuesOfEach = 5
	letters      = 300 // in each queue: more than one batch
)

// 15 queues, five of each deletionPolicy, are created and deleted while two operators without leader
// election are killed about every second. Each queue must be deleted or retained on the broker
// according to its policy, and each dead letter must be moved exactly once.
func TestDeletionPoliciesHoldWhileTwoOperatorsAreKilledEverySecond(t *testing.T) {
	ns := cluster.NewNamespace(t, "crash-", nil)
	s := natstest.Start(t)
	require.NoError(t, cluster.Create(t.Context(), testbuilder.BrokerSecret(ns, "broker", "url", s.ClientURL())))

	end := runOperators(t, 2, time.Second, false, "--namespaces", ns, "--controllers=queue")
	declare(t, ns, "archive", "Retain")
	var names []string
	for _, policy := range []string{"Retain", "Drain", "Purge"} {
		for i := range queuesOfEach {
			name := fmt.Sprintf("%s-%d", strings.ToLower(policy), i)
			declare(t, ns, name, policy)
			names = append(names, name)
		}
	}
	waitForQueues(t, ns, func(q *v1alpha1.Queue) bool {
		return meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.ConditionReady)
	}, len(names)+1)
	js := s.JetStream()
	for _, name := range names {
		for range letters {
			require.Call(js.PublishAsync("yardmaster."+name+".dead.default", []byte("poison"))).Succeeds(t)
		}
		<-js.PublishAsyncComplete()
		require.NoError(t, cluster.Delete(t.Context(), &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}))
	}
	waitForQueues(t, ns, func(*v1alpha1.Queue) bool { return true }, 1)
	t.Logf("%d queues were created and deleted with %d operators", len(names), len(end()))
	checkStreams(t, js)
	cluster.RemoveFinalizers(t, ns, "Queue")
}

// checkStreams compares the streams on the server with the expected ones.
func checkStreams(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	got, want := map[string]uint64{}, map[string]uint64{"yardmaster_archive": 0, "yardmaster_archive_dead": 3 * queuesOfEach * letters, "yardmaster_archive_delayed": 1}
	for i := range queuesOfEach {
		want[fmt.Sprintf("yardmaster_retain-%d", i)] = 0
		want[fmt.Sprintf("yardmaster_retain-%d_dead", i)] = 0
		want[fmt.Sprintf("yardmaster_retain-%d_delayed", i)] = 1 // its guard
	}
	streams := js.ListStreams(t.Context())
	for info := range streams.Info() {
		if !strings.HasPrefix(info.Config.Name, "KV_") {
			got[info.Config.Name] = info.State.Msgs
			if strings.HasSuffix(info.Config.Name, "_delayed") {
				got[info.Config.Name] = min(got[info.Config.Name], 1) // a killed operator may leave a second guard
			}
		}
	}
	require.NoError(t, streams.Err())
	assert.Equal(t, "streams and their messages", want, got)
}

func declare(t *testing.T, ns, name, policy string) {
	t.Helper()
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	q.Spec.Name, q.Spec.DeletionPolicy = name, v1alpha1.DeletionPolicy(policy)
	q.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	q.Spec.Broker.URLSecretRef.Name = "broker"
	if name != "archive" {
		q.Spec.DeadLetter = &v1alpha1.DeadLetter{OnDelete: v1alpha1.DeadLetterMove, MoveToRef: &v1alpha1.LocalReference{Name: "archive"}}
	}
	require.NoError(t, cluster.Create(t.Context(), q))
}

// waitForQueues waits until the number of Queues is as given, and all satisfy the condition.
func waitForQueues(t *testing.T, ns string, so func(*v1alpha1.Queue) bool, number int) {
	t.Helper()
	poll.Until(t, fmt.Sprintf("%d Queues to satisfy the condition", number), func() bool {
		var list v1alpha1.QueueList
		require.NoError(t, cluster.List(t.Context(), &list, client.InNamespace(ns)))
		isOther := func(q v1alpha1.Queue) bool { return !so(&q) }
		return len(list.Items) == number && !slices.ContainsFunc(list.Items, isOther)
	})
}
