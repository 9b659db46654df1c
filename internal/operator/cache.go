package operator

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	agenticsessioncontroller "github.com/yardmaster/yardmaster/internal/kinds/agenticsession/controller"
	schedulecontroller "github.com/yardmaster/yardmaster/internal/kinds/schedule/controller"
	sequentialjobcontroller "github.com/yardmaster/yardmaster/internal/kinds/sequentialjob/controller"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	workerpoolcontroller "github.com/yardmaster/yardmaster/internal/kinds/workerpool/controller"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/informer"
)

// cacheOptions keeps the cache small: only Jobs of a SequentialJob, only Pods and other objects of a WorkerPool, and few fields of
// large objects.
func cacheOptions(namespaces []string, restores *informer.RestoreDetector) (cache.Options, error) {
	ofSequentialJobs, err := labels.NewRequirement(v1alpha1.LabelSequentialJobUID, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, err
	}
	ofPools, err := labels.NewRequirement(workerpool.LabelWorkerPool, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, err
	}
	workers := cache.ByObject{Label: labels.NewSelector().Add(*ofPools)}
	workersAs := func(transform toolscache.TransformFunc) cache.ByObject {
		return cache.ByObject{Label: workers.Label, Transform: transform}
	}
	options := cache.Options{
		NewInformer:      restores.NewInformer,
		DefaultTransform: kube.TrimObject,
		ByObject: map[client.Object]cache.ByObject{
			&batchv1.Job{}: {Label: labels.NewSelector().Add(*ofSequentialJobs), Transform: kube.TrimJob},
			&corev1.Pod{}:  workersAs(workerpoolcontroller.TrimPod),
			// Users can fill their quota with objects of 1 MB. All fields of a Queue are short.
			&v1alpha1.SequentialJob{}:  {Transform: sequentialjobcontroller.TrimSequentialJob},
			&v1alpha1.AgenticSession{}: {Transform: agenticsessioncontroller.TrimSession},
			&v1alpha1.Schedule{}:       {Transform: schedulecontroller.TrimSchedule},
			&v1alpha1.WorkerPool{}:     {Transform: workerpoolcontroller.TrimWorkerPool},
			&v1alpha1.Policy{}: {Transform: kube.TrimTooLarge(
				func(p *v1alpha1.Policy) any { return p.Spec }, func(p *v1alpha1.Policy) { p.Spec = v1alpha1.PolicySpec{} })},
			&v1alpha1.SessionRunner{}: {Transform: kube.TrimTooLarge(
				func(r *v1alpha1.SessionRunner) any { return r.Spec }, func(r *v1alpha1.SessionRunner) { r.Spec = v1alpha1.SessionRunnerSpec{} })},
			// NetworkPolicies of users count too: they may select workers and sessions.
			&networkingv1.NetworkPolicy{}: {Transform: kube.TrimNetworkPolicy},
			&appsv1.Deployment{}:          workersAs(workerpoolcontroller.TrimDeployment),
			&appsv1.StatefulSet{}:         workersAs(workerpoolcontroller.TrimStatefulSet),
			// Only the metadata of these kinds is cached.
			&corev1.ConfigMap{}:             workers,
			&corev1.Service{}:               workers,
			&corev1.ServiceAccount{}:        workers,
			&policyv1.PodDisruptionBudget{}: workers,
		},
	}
	options.DefaultNamespaces = namespaceConfigs(namespaces)
	return options, nil
}

// namespaceConfigs limits a cache to these namespaces; without any, it returns nil, which means all.
func namespaceConfigs(namespaces []string) map[string]cache.Config {
	var limited map[string]cache.Config
	for _, namespace := range namespaces {
		if limited == nil {
			limited = map[string]cache.Config{}
		}
		limited[namespace] = cache.Config{}
	}
	return limited
}
