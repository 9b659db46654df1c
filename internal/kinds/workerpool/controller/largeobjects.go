package controller

import (
	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// TrimWorkerPool is a cache transform. A trimmed WorkerPool keeps its Queues, by which WorkerPools are found, and its status.
var TrimWorkerPool = kube.TrimLarge(isLarge, func(p *v1alpha1.WorkerPool) {
	p.Spec.Template, p.Spec.Sidecar = nil, nil
})

// isLarge reports whether a WorkerPool is too large for the cache. The other fields are short.
func isLarge(p *v1alpha1.WorkerPool) bool {
	size := 0
	if p.Spec.Template != nil {
		size += p.Spec.Template.Size()
	}
	if p.Spec.Sidecar != nil {
		for i := range p.Spec.Sidecar.Env {
			size += p.Spec.Sidecar.Env[i].Size()
		}
	}
	return size > kube.LargeBytes
}
