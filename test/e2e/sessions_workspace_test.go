//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

const (
	// sharedSessionCount is the number of sessions that share a workspace.
	sharedSessionCount = 4
	// maxChangeInterval is the maximum time between two random changes.
	maxChangeInterval = 3 * time.Second
)

// holderScript locks the workspace with a directory and records itself there until it ends. A runner that is killed
// leaves its lock, but no longer writes to it. A third of the runners ignores SIGTERM.
const holderScript = `
cd "$AGENTIC_WORKSPACE"
touch holders overlaps
n=$(($(wc -l < holders) % 6))
if [ $n -lt 2 ]; then trap '' TERM; else trap 'rm -r lock; exit 143' TERM; fi
if ! mkdir lock 2> /dev/null; then
	before=$(cat lock/beat || true)
	sleep 2
	[ "$(cat lock/beat || true)" = "$before" ] || echo "$AGENTIC_JOB next to $before" >> overlaps
	rm -r lock
	mkdir lock
fi
echo "$AGENTIC_JOB" > lock/owner
echo "$AGENTIC_JOB" >> holders
beat=0
while [ $beat -lt $((20 + 10 * n)) ]; do
	beat=$((beat + 1))
	echo "$AGENTIC_JOB $beat" > lock/beat
	[ "$(cat lock/owner)" = "$AGENTIC_JOB" ] || echo "$AGENTIC_JOB lost its lock to $(cat lock/owner)" >> overlaps
	sleep 0.1
done
rm -r lock
[ $n != 5 ]
`

// reportScript reports what the runners recorded.
const reportScript = `
cd "$AGENTIC_WORKSPACE"
touch holders overlaps
printf '{"summary": "%s holders|%s"}' "$(wc -l < holders)" "$(head -n 5 overlaps | tr '\n' ';')" > "$AGENTIC_RESULT_FILE"
`

// sharedWorkspace is a workspace that several sessions use.
type sharedWorkspace struct {
	t   *testing.T
	rng *rand.Rand
	// parent created the workspace, and the sessions continue it.
	parent   *sessionTest
	sessions []*sessionTest
}

// maxSharedChanges is the number of changes in one workspace. More of them are made in further workspaces, at the
// same time.
const maxSharedChanges = 100

// testWorkspaceHolders changes sessions that share a workspace at random, SESSION_WORKSPACE_CHANGES times.
func testWorkspaceHolders(t *testing.T) {
	changes := testbuilder.NumberFromEnv(t, "SESSION_WORKSPACE_CHANGES", 20)
	seed := uint64(testbuilder.NumberFromEnv(t, "SESSION_WORKSPACE_SEED", int(time.Now().Unix())))
	t.Logf("SESSION_WORKSPACE_SEED=%d", seed)
	for number := uint64(0); changes > 0; number++ {
		count := min(changes, maxSharedChanges)
		changes -= count
		t.Run(fmt.Sprintf("workspace %d", number), func(t *testing.T) {
			t.Parallel()
			shareWorkspace(t, rand.New(rand.NewPCG(seed, number)), count)
		})
	}
}

func shareWorkspace(t *testing.T, rng *rand.Rand, changes int) {
	t.Helper()
	w := &sharedWorkspace{t: t, rng: rng}
	w.parent = createSession(t, shellRunner, "true", setPersistentWorkspace)
	w.parent.waitForPhase(v1alpha1.SessionCompleted)
	for range sharedSessionCount {
		w.sessions = append(w.sessions, w.continueParent(holderScript))
	}
	made, total := map[string]int{}, 0
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for total < changes {
		ticker.Reset(1 + time.Duration(w.rng.Int64N(int64(maxChangeInterval))))
		<-ticker.C
		if s := w.pick(); s >= 0 {
			made[w.change(s)]++
			total++
		}
	}
	t.Logf("%d changes: %v", changes, made)
	report := w.report()
	t.Log(report)
	holders, overlaps, _ := strings.Cut(report, "|")
	if overlaps != "" {
		t.Errorf("runners used the workspace at the same time: %s", overlaps)
	}
	var count int
	if _, err := fmt.Sscanf(holders, "%d holders", &count); err != nil || count < changes/10 {
		t.Errorf("too few runners used the workspace: %s", holders)
	}
}

// pick returns the number of a session to change, or -1. Mostly it is one that uses the workspace, or one that has
// to be resumed for that: a change of sessions that only wait proves little.
func (w *sharedWorkspace) pick() int {
	w.t.Helper()
	var running, ended, starting []int
	for i, s := range w.sessions {
		switch status := s.getSession().Status; status.Phase {
		case v1alpha1.SessionRunning:
			running = append(running, i)
		case v1alpha1.SessionCompleted, v1alpha1.SessionFailed, v1alpha1.SessionStopped:
			ended = append(ended, i)
		case v1alpha1.SessionCreating:
			starting = append(starting, i)
		case v1alpha1.SessionPending, v1alpha1.SessionStopping:
		}
	}
	switch {
	case len(running) > 0 && w.rng.IntN(4) > 0:
		return running[w.rng.IntN(len(running))]
	case len(ended) > 0:
		return ended[w.rng.IntN(len(ended))]
	case len(starting) > 0 && w.rng.IntN(4) == 0:
		return starting[w.rng.IntN(len(starting))]
	}
	return -1
}

func (w *sharedWorkspace) continueParent(script string) *sessionTest {
	w.t.Helper()
	return createSession(w.t, shellRunner, script, func(spec *v1alpha1.AgenticSessionSpec) {
		spec.ContinueFrom = &v1alpha1.LocalReference{Name: w.parent.s.Name}
		spec.Retry = &v1alpha1.SessionRetry{Retry: v1alpha1.Retry{Limit: new(int32(1))}, OnDisruption: true}
	})
}

// change makes a random change of a session that is possible, and returns its name.
func (w *sharedWorkspace) change(i int) string {
	w.t.Helper()
	s := w.sessions[i]
	status := s.getSession().Status
	switch action := w.rng.IntN(6); {
	case status.Phase == v1alpha1.SessionCompleted || status.Phase == v1alpha1.SessionFailed:
		s.patchSpec(fmt.Sprintf(`{"rerun": {"id": "%d"}}`, s.s.Status.Run+1))
		return "rerun"
	case s.s.Spec.Suspend:
		s.patchSpec(`{"suspend": false}`)
		return "resume"
	case action == 0:
		s.deleteSession()
		w.sessions[i] = w.continueParent(holderScript)
		return "delete session"
	case action == 1 || status.Attempt.JobName == "":
		s.patchSpec(`{"suspend": true}`)
		return "stop"
	case action <= 3:
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.s.Namespace, Name: status.Attempt.JobName}}
		require.NoError(w.t, client.IgnoreNotFound(cluster.Delete(w.t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground))))
		return "delete Job"
	}
	return w.disturbPods(s)
}

// disturbPods evicts or deletes the Pods of a session.
func (w *sharedWorkspace) disturbPods(s *sessionTest) string {
	w.t.Helper()
	pods := podsWith(w.t, s.s.Namespace, map[string]string{agenticsession.LabelSessionUID: string(s.s.UID)})
	isEviction := w.rng.IntN(2) == 0
	for i := range pods {
		pod := &pods[i]
		err := error(nil)
		if isEviction {
			err = clientset.PolicyV1().Evictions(pod.Namespace).Evict(w.t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}})
		} else {
			err = cluster.Delete(w.t.Context(), pod)
		}
		if !apierrors.IsConflict(err) {
			require.NoError(w.t, client.IgnoreNotFound(err))
		}
	}
	if isEviction {
		return "evict Pod"
	}
	return "delete Pod"
}

// report deletes all sessions but the parent, and reads what the runners recorded.
func (w *sharedWorkspace) report() string {
	w.t.Helper()
	for _, s := range w.sessions {
		s.deleteSession()
	}
	reader := w.continueParent(reportScript)
	reader.waitForPhase(v1alpha1.SessionCompleted)
	return reader.s.Status.Result.Summary
}
