//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

const (
	releaseImage = "release-worker:v1"
	// noDefect is a good release. dependencyDown is one too, but all jobs of the old and the new release fail meanwhile.
	noDefect, dependencyDown = "good", "dependency-down"
	// releaseWorkers is the number of workers of a pool.
	releaseWorkers = 2
	// badReleaseTime is how long a defective release is observed. It is longer than a good one needs.
	badReleaseTime = 75 * time.Second
)

// trial is a release that is rolled out while messages arrive.
type trial struct {
	defect   string
	strategy v1alpha1.RolloutStrategy
	// backlog is true if messages wait when the release is rolled out. Otherwise they arrive more slowly than the workers handle them.
	backlog bool
}

func (c trial) name() string {
	waiting := "idle"
	if c.backlog {
		waiting = "busy"
	}
	return strings.ToLower(fmt.Sprintf("%s-%s-%s", c.defect, c.strategy, waiting))
}

// releaseTrials returns all combinations.
func releaseTrials() []trial {
	var all []trial
	for _, defect := range []string{noDefect, dependencyDown, "idle", "fail", "fail-half", "password", "crash", "unready", "hang"} {
		for _, strategy := range []v1alpha1.RolloutStrategy{v1alpha1.RolloutRolling, v1alpha1.RolloutCanary} {
			for _, backlog := range []bool{false, true} {
				all = append(all, trial{defect, strategy, backlog})
			}
		}
	}
	return all
}

// testReleases rolls out good and defective releases at the same time, each in a pool of its own.
func testReleases(t *testing.T) {
	t.Helper()
	env := newQueueEnv(t, releaseNamespace)
	env.requireLogin("worker:right@", "--user=worker", "--pass=right")
	env.runKubectl("patch", "secret", "broker", "-p", fmt.Sprintf(`{"stringData":{"url":%q}}`, env.brokerURL()))
	for _, c := range releaseTrials() {
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			own := *env
			own.t, own.sentBatches = t, nil
			(&releaseTest{queueEnv: &own, trial: c}).run()
		})
	}
}

// requireLogin restarts the broker with authentication and uses the login from then on.
func (env *queueEnv) requireLogin(user string, args ...string) {
	env.t.Helper()
	args = append([]string{"--jetstream", "--store_dir=/data", "--port=4222", "--http_port=8222"}, args...)
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "nats", "args": args}},
	}}}})
	require.NoError(env.t, err)
	env.runKubectl("patch", "statefulset", "nats", "-p", string(patch))
	env.runKubectl("rollout", "status", "statefulset/nats", "--timeout=10m")
	env.brokerUser = user
}

// releaseTest is the rollout of one release.
type releaseTest struct {
	*queueEnv
	trial trial
}

func (r *releaseTest) run() {
	r.createQueue(r.trial.name(), func(q *v1alpha1.Queue) {
		q.Spec.Retry = &v1alpha1.Retry{Limit: new(int32(49)), Backoff: durationOfSeconds(1), MaxBackoff: durationOfSeconds(1)}
	})
	r.createReleasePool()
	poll.Until(r.t, "the first release to serve", func() bool { return r.pool().Status.Ready == releaseWorkers })
	good := r.pool().Status.CurrentRevision
	// 2 workers with 2 jobs of 100 ms handle 40 messages per second.
	batch := jobBatch{queue: r.trial.name(), run: r.trial.name(), jobs: 400, rate: 4}
	if r.trial.backlog {
		batch.jobs, batch.rate = 4000, 400
	}
	r.sendBatch(batch)
	r.release("2", r.trial.defect)
	if r.trial.defect == noDefect || r.trial.defect == dependencyDown {
		r.waitUntilPromoted(good)
	} else {
		r.wantOldReleaseServes(good)
	}
	r.release("3", noDefect)
	r.waitUntilAllDone()
}

// waitUntilPromoted waits until another release has replaced this one.
func (r *releaseTest) waitUntilPromoted(old string) {
	r.t.Helper()
	poll.Until(r.t, "the good release to be promoted", func() bool {
		pool := r.pool()
		return pool.Status.CurrentRevision != old && meta.IsStatusConditionTrue(pool.Status.Conditions, v1alpha1.ConditionReady)
	})
}

func (r *releaseTest) createReleasePool() {
	name := r.trial.name()
	r.createPoolFromExample("orders/workerpool.yaml", func(pool *v1alpha1.WorkerPool) {
		setFixedReplicas(pool, releaseWorkers, 2)
		pool.Name = name
		pool.Spec.Queues = []v1alpha1.PoolQueue{{LocalReference: v1alpha1.LocalReference{Name: name}}}
		pool.Spec.Image, pool.Spec.Version = releaseImage, ""
		pool.Spec.Template.Spec.Containers[0].Resources.Requests = nil
		worker := &pool.Spec.Template.Spec.Containers[0]
		worker.Env = r.environment(noDefect)
		if r.trial.defect == dependencyDown {
			worker.Env = r.environment(dependencyDown)
		}
		pool.Spec.Drain = &v1alpha1.Drain{Timeout: durationOfSeconds(10), OnTimeout: v1alpha1.DrainRequeue}
		pool.Spec.Rollout = &v1alpha1.Rollout{Strategy: r.trial.strategy}
		if r.trial.strategy == v1alpha1.RolloutCanary {
			pool.Spec.Rollout.Steps = []v1alpha1.RolloutStep{{Percent: 50, Pause: durationOfSeconds(5)}}
		}
	})
}

func (r *releaseTest) pool() *v1alpha1.WorkerPool {
	r.t.Helper()
	pool := &v1alpha1.WorkerPool{}
	require.NoError(r.t, cluster.Get(r.t.Context(), r.objectKey(r.trial.name()), pool))
	return pool
}

// environment of the workers of a release.
func (r *releaseTest) environment(defect string) []corev1.EnvVar {
	wrong := strings.Replace(r.brokerURL(), ":right@", ":wrong@", 1)
	return []corev1.EnvVar{{Name: "BROKER", Value: wrong}, {Name: "DEFECT", Value: defect}}
}

func (r *releaseTest) release(version, defect string) {
	r.t.Helper()
	pool := r.pool()
	before := pool.DeepCopy()
	pool.Spec.Version, pool.Spec.Template.Spec.Containers[0].Env = version, r.environment(defect)
	require.NoError(r.t, cluster.Patch(r.t.Context(), pool, client.MergeFrom(before)))
}

// wantOldReleaseServes checks that the defective release is never promoted, and the old one keeps all of its workers.
func (r *releaseTest) wantOldReleaseServes(good string) {
	r.t.Helper()
	deadline := time.Now().Add(badReleaseTime)
	for time.Now().Before(deadline) {
		pool := r.pool()
		require.True(r.t, pool.Status.CurrentRevision == good, "revision %s was promoted: %+v", pool.Status.CurrentRevision, pool.Status.Conditions)
		if ready := readyWorkersIn(pool, good); ready < r.trial.minOldWorkers() {
			r.t.Fatalf("%d workers of the old release are ready, want %d: %+v", ready, r.trial.minOldWorkers(), pool.Status.Revisions)
		}
		select {
		case <-time.After(time.Second):
		case <-r.t.Context().Done():
			r.t.Fatal(r.t.Context().Err())
		}
	}
	poll.Until(r.t, "the old release to have all of its workers", func() bool {
		return readyWorkersIn(r.pool(), good) == releaseWorkers
	})
}

// minOldWorkers returns how many workers of the old release must always be ready. A worker of which half of
// the jobs succeed replaces an old one, until enough jobs have failed.
func (c trial) minOldWorkers() int32 {
	if c.defect == "fail-half" {
		return 1
	}
	return releaseWorkers
}

func readyWorkersIn(pool *v1alpha1.WorkerPool, revision string) int32 {
	for _, status := range pool.Status.Revisions {
		if status.Name == revision {
			return status.Ready
		}
	}
	return 0
}
