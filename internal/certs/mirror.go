package certs

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/yardmaster/yardmaster/internal/informer"
)

// Mirror keeps a directory equal to the certificate in a Secret.
type Mirror struct {
	cache cache.Cache
	dir   dir
}

// NewMirror is a Mirror of one Secret into directory. It watches that Secret alone.
func NewMirror(mgr ctrl.Manager, secret types.NamespacedName, directory string) (*Mirror, error) {
	one := fields.OneTermEqualSelector("metadata.name", secret.Name)
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient:  mgr.GetHTTPClient(),
		Scheme:      mgr.GetScheme(),
		Mapper:      mgr.GetRESTMapper(),
		NewInformer: informer.NewInformer,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{secret.Namespace: {FieldSelector: one}}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making a cache for Secret %s: %w", secret, err)
	}
	return &Mirror{cache: secrets, dir: dir(directory)}, nil
}

// NeedLeaderElection is false: every replica serves webhooks.
func (*Mirror) NeedLeaderElection() bool {
	return false
}

// Start mirrors until ctx ends or a file cannot be written.
func (m *Mirror) Start(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	informer, err := m.cache.GetInformer(ctx, &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching the certificate Secret: %w", err)
	}
	mirror := func(object any) {
		if err := m.mirror(ctx, object); err != nil {
			fail(err)
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    mirror,
		UpdateFunc: func(_, updated any) { mirror(updated) },
		// A deleted Secret leaves the last certificate in place: it is still good.
	}); err != nil {
		return fmt.Errorf("watching the certificate Secret: %w", err)
	}
	if err := m.cache.Start(ctx); err != nil {
		return err
	}
	return writeFailure(ctx)
}

func (m *Mirror) mirror(ctx context.Context, object any) error {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return fmt.Errorf("expected a Secret, got %T", object)
	}
	files := filesOf(secret)
	if files == nil {
		return nil // The rotator has not filled it yet.
	}
	if err := m.dir.write(files); err != nil {
		return fmt.Errorf("writing the certificate: %w", err)
	}
	log.FromContext(ctx).Info("Certificate is in place", "directory", string(m.dir))
	return nil
}

// filesOf are the files a server needs, or nil if the Secret does not hold them all.
// The CA's key, which the Secret holds too, is not among them.
func filesOf(secret *corev1.Secret) map[string][]byte {
	files := map[string][]byte{}
	for _, name := range []string{certFile, keyFile, caFile} {
		if len(secret.Data[name]) == 0 {
			return nil
		}
		files[name] = secret.Data[name]
	}
	return files
}

// writeFailure is why ctx was ended, unless that was the manager stopping.
func writeFailure(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() { //nolint:errorlint // Identity is the question.
		return cause
	}
	return nil
}
