// Package prepull runs a DaemonSet for each SessionRunner with prepull, which pulls the images of its sessions on the nodes
// that may run them.
package prepull

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// Options of the controller.
type Options struct {
	// Concurrency is the number of SessionRunners that are reconciled at the same time.
	Concurrency int
	// DaemonSets is a cache of the DaemonSets of this controller, and of nothing else.
	DaemonSets cache.Cache
	// Image has the program session-runner. If it is empty, no image can be pulled.
	Image string
}

// Reconciler reconciles SessionRunners.
type Reconciler struct {
	kube.Clients

	options Options
}

// New returns a Reconciler that uses the manager's clients.
func New(mgr ctrl.Manager, o Options) *Reconciler {
	return &Reconciler{Clients: kube.NewClients(mgr, "prepull-controller"), options: o}
}

// +kubebuilder:rbac:groups=yardmaster.dev,resources=sessionrunners,verbs=list;watch
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// refusedInterval is the time after which a DaemonSet that was refused is tried again.
const refusedInterval = 30 * time.Second

// fieldOwner of the DaemonSets.
const fieldOwner = client.FieldOwner("yardmaster-prepull")

// Reconcile applies or deletes the DaemonSet of a SessionRunner. Its state is that of the DaemonSet: this has no status of
// its own. The garbage collector deletes it with its SessionRunner.
func (r *Reconciler) Reconcile(ctx context.Context, runner *v1alpha1.SessionRunner) (ctrl.Result, error) {
	if !runner.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	if !runner.Spec.Prepull {
		return ctrl.Result{}, r.deleteUnused(ctx, runner)
	}
	refusal, err := r.apply(ctx, runner)
	if err != nil || refusal == nil {
		return ctrl.Result{}, err
	}
	refusedTotal.Inc()
	kube.EmitEvent(r.Recorder, runner, decision.WarningEvent(v1alpha1.EventPrepullRefused, "Prepull", refusal.Kind+" "+refusal.Name+": "+refusal.Message))
	return ctrl.Result{RequeueAfter: refusedInterval}, nil
}

func (r *Reconciler) deleteUnused(ctx context.Context, runner *v1alpha1.SessionRunner) error {
	existing, err := kube.GetIfExists(ctx, r.options.DaemonSets, runner.Namespace, agenticsession.PrepullName(runner.Name), &appsv1.DaemonSet{})
	if err != nil || existing == nil || !metav1.IsControlledBy(existing, runner) || !existing.DeletionTimestamp.IsZero() {
		return err
	}
	return kube.DeleteVersion(ctx, r.Client, existing, metav1.DeletePropagationBackground)
}

// apply applies the DaemonSet, unless another one has its name: one of a SessionRunner that was deleted, or somebody else's.
func (r *Reconciler) apply(ctx context.Context, runner *v1alpha1.SessionRunner) (*decision.Refusal, error) {
	daemonSet := agenticsession.NewPrepull(runner, r.options.Image)
	refused := decision.Refusal{Kind: "DaemonSet", Name: daemonSet.Name}
	if r.options.Image == "" {
		refused.Message = "the operator has no image with session-runner; set its flag --worker-image"
		return &refused, nil
	}
	existing := &metav1.PartialObjectMetadata{TypeMeta: daemonSet.TypeMeta}
	existing, err := kube.GetIfExists(ctx, r.Live, runner.Namespace, daemonSet.Name, existing)
	switch {
	case err != nil:
		return nil, err
	case existing != nil && !metav1.IsControlledBy(existing, runner):
		refused.Message = "an object with this name exists that the operator did not create for this SessionRunner; delete or rename it"
		return &refused, nil
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(daemonSet)
	if err != nil {
		return nil, fmt.Errorf("encoding DaemonSet %s: %w", daemonSet.Name, err)
	}
	u := &unstructured.Unstructured{Object: raw}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(u.Object, "status")
	return kube.AsRefusal(r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership), refused)
}
