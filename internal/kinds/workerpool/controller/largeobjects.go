package controller

import (
	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// TrimWorkerPool is a cache transform. A trimmed WorkerPool keeps its Queues, by which WorkerPools are found, and its status.
var TrimWorkerPool = kube.TrimLarge(isLarge, func(p *v1alpha1.WorkerPool) { p.Spec.Template = nil })

// isLarge reports whether a WorkerPool is too large for the cache. The other fields are short.
func isLarge(p *v1alpha1.WorkerPool) bool {
	return p.Spec.Template != nil && p.Spec.Template.Size() > kube.LargeBytes
}
