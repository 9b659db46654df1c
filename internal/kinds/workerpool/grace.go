package workerpool

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
)

// shutdownMargin is how long before the end of its grace period a worker stops handling
// messages, so that it can still release them.
const shutdownMargin = 5 * time.Second

// terminationGrace is the grace period of a worker's Pod. In mode Signal, SIGTERM is what starts
// draining, so the grace period includes the drain timeout.
func (b *workloadBuilder) terminationGrace() time.Duration {
	grace := b.drain.TerminationGrace.Duration.Duration
	if b.drain.Mode == v1alpha1.DrainSignal {
		grace += b.drain.Timeout.Duration.Duration
	}
	return grace
}

// hashedGrace is the grace period in the hash of a template: a default counts as the smallest one.
func (b *workloadBuilder) hashedGrace() time.Duration {
	if b.defaultGrace && b.drain.Mode != v1alpha1.DrainSignal {
		return policy.MinTerminationGrace
	}
	return b.terminationGrace()
}

// setTerminationGrace sets the grace period of a Pod, and how long its worker may take to drain.
func setTerminationGrace(pod *corev1.PodSpec, grace time.Duration) {
	pod.TerminationGracePeriodSeconds = new(wholeSeconds(grace))
	for _, containers := range [][]corev1.Container{pod.Containers, pod.InitContainers} {
		for i := range containers {
			for j := range containers[i].Env {
				if containers[i].Env[j].Name == v1alpha1.WorkerEnvPrefix+"DRAIN_TIMEOUT" {
					containers[i].Env[j].Value = max(grace-shutdownMargin, grace/2).String()
				}
			}
		}
	}
}

// TerminationGraceOf returns the grace period of a Pod.
func TerminationGraceOf(pod *corev1.PodSpec) time.Duration {
	return time.Duration(ptr.Deref(pod.TerminationGracePeriodSeconds, 0)) * time.Second
}

func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
