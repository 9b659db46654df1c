package manager

import "github.com/yardmaster/yardmaster/api/v1alpha1"

// What the operator may do in the namespaces it watches; `make manifests` makes roles
// of it. They are marked here, where each controller is switched on.
//
// SequentialJob:
// +kubebuilder:rbac:groups=yardmaster.dev,resources=sequentialjobs,verbs=get;list;watch;update;patch;delete
// +kubebuilder:rbac:groups=yardmaster.dev,resources=sequentialjobs/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=yardmaster.dev,resources=sequentialjobs/finalizers,verbs=update
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=configmaps;persistentvolumeclaims,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// All are the controllers there are.
func All() []Controller {
	return []Controller{
		{Name: "sequentialjob", Kind: v1alpha1.GroupVersion.WithKind("SequentialJob")},
	}
}
