// Package crash tests sequences, queues and sessions while the operator is killed repeatedly. It
// needs the KUBECONFIG of a real API server, and no other operator may run there.
package crash

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/sequence"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

const (
	sequences = 200
	lifetime  = time.Second // average time from the readiness of an operator until it is killed
	patience  = 10 * time.Minute
	root      = "../../.."
)

// The operator is killed about every second while it runs 200 sequences of three steps, many with other options.
// Every step must run exactly once, after the previous step has ended; one that fails as often as its retries say.
func TestNoStepIsRepeatedOrSkippedWhileTheOperatorIsKilledEverySecond(t *testing.T) {
	if os.Getenv("KUBECONFIG") == "" {
		t.Skip("KUBECONFIG is not set, so there is no cluster to test against: use make test-integration")
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 500, 1000
	cluster := connect(t, config)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	installCRDs(t, config)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "crash-"}}
	if err := cluster.Create(ctx, ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Delete(context.Background(), ns) })

	journal := record(ctx, t, cluster, ns.Name)
	kills := make(chan int, 1)
	killing, stopKilling := context.WithCancel(ctx)
	go func() { kills <- runAndKill(killing, t, build(t), ns.Name) }()
	for i := range sequences {
		if err := cluster.Create(ctx, sequenceNumber(i, ns.Name)); err != nil {
			t.Fatal(err)
		}
	}
	wantAllCompleted(ctx, t, cluster, ns.Name)
	stopKilling()
	t.Logf("%d sequences completed while the operator was killed %d times", sequences, <-kills)
	journal.check(t, cluster, ns.Name)
}

func connect(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cluster, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

func sequenceNumber(i int, ns string) *v1alpha1.SequentialJob {
	b := testbuilder.SequentialJob(fmt.Sprintf("s%03d", i), ns).Step("a").Step("b", testbuilder.RecordOutput()).Step("c")
	if i%3 == 0 {
		b = b.Finally("clean")
	}
	switch i % 10 {
	case 1:
		b = b.Step("skipped", testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.When = `steps.a.phase == "Failed"` }))
	case 2:
		b = b.Workspace(v1alpha1.WorkspaceDelete)
	case 3, 4:
		b = b.Step(lateStep, testbuilder.ContinueOnFailure(), testbuilder.WithStepOptions(failTwice)).Step("d")
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
	options.Retry = &v1alpha1.StepRetry{Limit: 1, BackoffSeconds: new(int32(1))}
	options.PodTemplate = &runtime.RawExtension{Raw: []byte(`{"metadata": {"annotations": {"sim.localcluster.dev/duration": "1h"}}}`)}
}

// build builds the operator.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "yardmaster")
	command := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/yardmaster")
	command.Dir = root
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return binary
}

// runAndKill runs one operator after another and kills each. It returns the number of kills.
func runAndKill(ctx context.Context, t *testing.T, binary, ns string, flags ...string) int {
	for kills := 0; ; kills++ {
		health := freeAddress(t)
		operator := exec.CommandContext(ctx, binary, append([]string{
			"--namespaces", ns, "--leader-elect=false", "--webhook=false",
			"--metrics-bind-address=0", "--health-probe-bind-address=" + health,
		}, flags...)...)
		if err := operator.Start(); err != nil {
			return kills
		}
		running, end := context.WithCancel(context.WithoutCancel(ctx)) // a canceled ctx kills the operator
		go func() {
			_ = operator.Wait()
			end()
		}()
		waitReady(running, health)
		select {
		case <-running.Done():
		case <-time.After(lifetime/2 + rand.N(lifetime)):
		}
		if running.Err() != nil && ctx.Err() == nil {
			t.Errorf("the operator ended by itself: %v", operator.ProcessState)
			return kills
		}
		_ = operator.Process.Kill() // SIGKILL: the operator cannot clean up
		<-running.Done()
		if ctx.Err() != nil {
			return kills
		}
	}
}

func freeAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Error(err)
		return "127.0.0.1:0"
	}
	defer listener.Close()
	return listener.Addr().String()
}

func waitReady(ctx context.Context, address string) {
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
		if err != nil {
			return
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		pause(ctx)
	}
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
}

func wantAllCompleted(ctx context.Context, t *testing.T, cluster client.Client, ns string) {
	t.Helper()
	for {
		var list v1alpha1.SequentialJobList
		if err := cluster.List(ctx, &list, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
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
		if completed == sequences {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d of %d completed within %s", completed, sequences, patience)
		case <-time.After(500 * time.Millisecond):
		}
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

func record(ctx context.Context, t *testing.T, cluster client.WithWatch, ns string) *journal {
	t.Helper()
	events, err := cluster.Watch(ctx, &batchv1.JobList{}, client.InNamespace(ns))
	if err != nil {
		t.Fatal(err)
	}
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
			case sequence.IsTerminal(job) && !ended[e.job]:
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

// happened returns the history of each sequence's Jobs.
func (j *journal) happened() map[string]string {
	j.mu.Lock()
	defer j.mu.Unlock()
	happened := map[string]string{}
	for _, e := range j.entries {
		what := "ended"
		if e.made {
			what = "created"
		}
		happened[e.owner] += what + " " + e.step + "; "
	}
	return happened
}

// check checks that each sequence had one Job for each attempt that a step should have, in the order of the spec, and
// that each Job was created after the previous one had ended.
func (j *journal) check(t *testing.T, cluster client.Client, ns string) {
	t.Helper()
	var list v1alpha1.SequentialJobList
	if err := cluster.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
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
			if step.Phase != phase {
				t.Errorf("%s: step %s is %s, want %s", sj.Name, step.Name, step.Phase, phase)
			}
			if step.Finally || phase == v1alpha1.StepSkipped {
				continue
			}
			counted++
			if phase == v1alpha1.StepSucceeded {
				succeeded++
			}
		}
		if display := fmt.Sprintf("%d/%d", succeeded, counted); sj.Status.Progress.Display != display {
			t.Errorf("%s: progress %s, want %s", sj.Name, sj.Status.Progress.Display, display)
		}
	}
	deadline := time.Now().Add(10 * time.Second) // the watch may lag behind
	for time.Now().Before(deadline) && !maps.Equal(want, j.happened()) {
		pause(t.Context())
	}
	if diff := cmp.Diff(want, j.happened()); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
}
