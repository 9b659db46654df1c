package integration

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
)

// podsOf returns the Pods of a pool.
func (c *poolTestEnv) podsOf(wp string) []corev1.Pod {
	c.t.Helper()
	var pods corev1.PodList
	if err := cluster.List(c.t.Context(), &pods, client.InNamespace(c.ns), client.MatchingLabels(workerpool.WorkerSelector(wp))); err != nil {
		c.t.Fatal(err)
	}
	return pods.Items
}

func isProtected(pod *corev1.Pod) bool {
	return pod.Annotations[workerpool.AnnotationSafeToEvict] == "false" && pod.Annotations[workerpool.AnnotationDoNotDisrupt] == "true"
}

func protectsOnlyBusyPods(t *testing.T) {
	c := newPoolTestEnv(t, 0)
	release := c.holdJobs()
	c.createPool("mailers", "replicas: 2")
	c.waitForPool("mailers", "ready", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready == 2 })
	c.waitForConnectedWorkers(2)

	c.sendMessages("mail", 1)
	sent := time.Now()
	writes := map[string]bool{} // by the time of the write
	protected := func() int {
		count := 0
		for _, pod := range c.podsOf("mailers") {
			if written := pod.Annotations[workerpool.AnnotationProtection]; written != "" {
				writes[written] = true
			}
			if isProtected(&pod) {
				count++
			}
		}
		return count
	}
	c.waitFor("the busy Pod to be protected", func() bool { return protected() == 1 })
	assertWithin(t, "the busy Pod is protected", 13*time.Second, sent) // the next reading, and its time limits
	release()
	c.waitForHandledJobs(1)
	c.waitFor("no Pod to be protected", func() bool { return protected() == 0 })
	if len(writes) != 2 {
		t.Errorf("written at %v, want twice", writes)
	}
}
