package controller

import (
	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// TrimSequentialJob is a cache transform.
var TrimSequentialJob = kube.TrimLarge(func(sj *v1alpha1.SequentialJob) {
	sj.Spec = v1alpha1.SequentialJobSpec{ManagedBy: sj.Spec.ManagedBy}
	sj.Status.Steps = nil
})
