// Package crash tests sequences and queues while the operator is killed repeatedly. It
// needs the KUBECONFIG of a real API server, and no other operator may run there.
package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/test/assert"
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
	sequences := testbuilder.NumberFromEnv(t, "CRASH_SEQUENCES", 60)
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
	binary, err := testenv.BuildOperator()
	require.NoError(t, err)
	return binary
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
	if err := poll.UntilNil(t.Context(), func() error {
		var list v1alpha1.SequentialJobList
		if err := cluster.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
			return err
		}
		completed := 0
		for i := range list.Items {
			switch sj := &list.Items[i]; sj.Status.Phase {
			case v1alpha1.PhaseCompleted:
				completed++
			case v1alpha1.PhaseFailed:
				t.Fatalf("%s failed: %+v", sj.Name, sj.Status.Conditions)
			}
		}
		if completed != sequences {
			return fmt.Errorf("%d of %d completed", completed, sequences)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// journal records when the Jobs of a namespace are created and end, in the order of the API server:
// a watch delivers all changes of one resource in order.
type journal struct {
	mu      sync.Mutex
	entries []entry
}

type entry struct {
	owner, step, job string
	made             bool // else ended
}

func record(t *testing.T, ns string) *journal {
	t.Helper()
	events, err := cluster.Watch(t.Context(), &batchv1.JobList{}, client.InNamespace(ns))
	require.NoError(t, err)
	j := &journal{}
	ended := map[string]bool{}
	go func() {
		for event := range events.ResultChan() {
			job, ok := event.Object.(*batchv1.Job)
			if !ok {
				continue
			}
			e := entry{owner: job.OwnerReferences[0].Name, step: job.Labels[v1alpha1.LabelStep], job: string(job.UID)}
			switch {
			case event.Type == watch.Added:
				e.made = true
				j.add(e)
			case sequentialjob.IsTerminal(job) && !ended[e.job]:
				ended[e.job] = true
				j.add(e)
			}
		}
	}()
	t.Cleanup(events.Stop)
	return j
}

func (j *journal) add(e entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, e)
}

// happened returns the history of each sequence's Jobs, and the number of its entries.
func (j *journal) happened() (history map[string]string, entries int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	history = map[string]string{}
	for _, e := range j.entries {
		what := "ended"
		if e.made {
			what = "created"
		}
		history[e.owner] += what + " " + e.step + "; "
	}
	return history, len(j.entries)
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
	var got map[string]string
	poll.Until(t, "the watch to deliver all changes", func() bool {
		var entries int
		got, entries = j.happened()
		return entries >= wantEntries
	})
	assert.Equal(t, "Jobs", want, got)
}
