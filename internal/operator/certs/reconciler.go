package certs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/informer"
	"github.com/yardmaster/yardmaster/internal/operator/webhook"
)

// caFile is the key of the certificate authority in the Secret.
const caFile = "ca.crt"

// reconciler adds the secret path to the Secret of the certificate, copies both into the directory of the webhook server, and writes
// the path into the webhook configurations. Every replica runs it.
type reconciler struct {
	writer client.Writer
	// cache has only the Secret and the configurations.
	cache          cache.Cache
	secret         types.NamespacedName
	configurations []client.Object
	dir            certificateDir
}

// newReconciler returns a reconciler of these configurations, of which only the name is set.
func newReconciler(mgr ctrl.Manager, secret types.NamespacedName, configurations []client.Object, directory string) (*reconciler, error) {
	byObject := map[client.Object]cache.ByObject{&corev1.Secret{}: {
		Namespaces: map[string]cache.Config{secret.Namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", secret.Name)}},
	}}
	for _, c := range configurations {
		byObject[c] = cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", c.GetName())}
	}
	objects, err := informer.NewCache(mgr, "Secret "+secret.String()+" and the webhook configurations", cache.Options{ByObject: byObject})
	if err != nil {
		return nil, err
	}
	return &reconciler{
		writer: mgr.GetClient(), cache: objects, secret: secret,
		configurations: configurations, dir: certificateDir(directory),
	}, nil
}

// cacheRunner runs a cache on every replica, not only on the leader.
type cacheRunner struct{ cache.Cache }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (cacheRunner) NeedLeaderElection() bool { return false }

func (r *reconciler) setupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(cacheRunner{r.cache}); err != nil {
		return err
	}
	options := kube.ControllerOptions(1)
	options.NeedLeaderElection = new(false)
	// Every event leads to the same reconciliation.
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: r.secret}}
	})
	b := ctrl.NewControllerManagedBy(mgr).Named("webhook-configuration").WithOptions(options)
	for _, watched := range append([]client.Object{&corev1.Secret{}}, r.configurations...) {
		b = b.WatchesRawSource(source.Kind(r.cache, watched, enqueue))
	}
	return b.Complete(kube.RequeueOnConflict(r))
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	secret := &corev1.Secret{}
	if err := r.cache.Get(ctx, r.secret, secret); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // the last certificate remains valid
	}
	if len(secret.Data[webhook.CertFile]) == 0 {
		return ctrl.Result{}, nil // the rotator has not written the certificate yet
	}
	now := time.Now()
	segments, err := r.rotatePath(ctx, secret, now)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("writing the webhook path to Secret %s: %w", r.secret, err)
	}
	// The server accepts a segment before the API server uses it.
	if files := certificateFiles(secret); files != nil {
		if err := r.dir.writeFiles(files); err != nil {
			return ctrl.Result{}, fmt.Errorf("writing the certificate to %s: %w", r.dir, err)
		}
	}
	segment, changesIn := segments.inUse(now)
	if err := r.writePaths(ctx, segment); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: changesIn}, nil
}

// rotatePath adds a new path segment to the Secret when it is due.
func (r *reconciler) rotatePath(ctx context.Context, secret *corev1.Secret, now time.Time) (pathSegments, error) {
	stored := secret.Data[webhook.PathFile]
	segments := parsePathSegments(stored).rotate(now, rand.Text())
	if segments.String() == string(stored) {
		return segments, nil
	}
	before := secret.DeepCopy()
	secret.Data[webhook.PathFile] = []byte(segments.String())
	// Another replica may do the same at this moment.
	return segments, r.writer.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func (r *reconciler) writePaths(ctx context.Context, segment string) error {
	return r.forEachConfiguration(ctx, func(configuration client.Object) error {
		changed := withPaths(configuration, segment)
		if configuration.GetAnnotations()[secretPathsAnnotation] != "true" || equality.Semantic.DeepEqual(configuration, changed) {
			return nil
		}
		// The merge key of webhooks is their name, so this changes nothing but the paths.
		patch := client.StrategicMergeFrom(configuration, client.MergeFromWithOptimisticLock{})
		if err := r.writer.Patch(ctx, changed, patch, client.FieldOwner(fieldOwner)); err != nil {
			return fmt.Errorf("writing the path into webhook configuration %s: %w", configuration.GetName(), err)
		}
		log.FromContext(ctx).Info("Webhook path written", "configuration", configuration.GetName())
		return nil
	})
}

func (r *reconciler) forEachConfiguration(ctx context.Context, do func(client.Object) error) error {
	var errs []error
	for _, empty := range r.configurations {
		configuration, _ := empty.DeepCopyObject().(client.Object)
		err := r.cache.Get(ctx, client.ObjectKeyFromObject(empty), configuration)
		if err == nil {
			err = do(configuration)
		}
		errs = append(errs, client.IgnoreNotFound(err))
	}
	return errors.Join(errs...)
}

// ready implements healthz.Checker: the API server must be able to call the webhook.
func (r *reconciler) ready(request *http.Request) error {
	secret := &corev1.Secret{}
	if err := r.cache.Get(request.Context(), r.secret, secret); err != nil {
		return fmt.Errorf("reading the Secret of the webhook's certificate: %w", err)
	}
	segments := parsePathSegments(secret.Data[webhook.PathFile])
	return r.forEachConfiguration(request.Context(), func(configuration client.Object) error {
		if !canCall(configuration, secret.Data[caFile], segments) {
			return fmt.Errorf("webhook configuration %s does not have the certificate authority and the path of Secret %s yet",
				configuration.GetName(), r.secret)
		}
		return nil
	})
}

// webhookConfigurations returns configurations with only this name.
func webhookConfigurations(name string, mutating bool) []client.Object {
	validates := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	validates.Name = name
	if !mutating {
		return []client.Object{validates}
	}
	mutates := &admissionregistrationv1.MutatingWebhookConfiguration{}
	mutates.Name = name
	return []client.Object{validates, mutates}
}

// certificateFiles returns the files of the server, or nil if the Secret lacks one of them. It leaves out the CA's private key.
func certificateFiles(secret *corev1.Secret) map[string][]byte {
	files := map[string][]byte{}
	for _, name := range []string{webhook.CertFile, webhook.KeyFile, caFile, webhook.PathFile} {
		if len(secret.Data[name]) == 0 {
			return nil
		}
		files[name] = secret.Data[name]
	}
	return files
}
