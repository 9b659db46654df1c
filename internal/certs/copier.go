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

// CertificateCopier copies the certificate from a Secret into a directory whenever it changes.
type CertificateCopier struct {
	cache cache.Cache
	dir   certificateDir
}

// NewCertificateCopier returns a CertificateCopier. It watches only this Secret.
func NewCertificateCopier(mgr ctrl.Manager, secret types.NamespacedName, directory string) (*CertificateCopier, error) {
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
		return nil, fmt.Errorf("creating a cache for Secret %s: %w", secret, err)
	}
	return &CertificateCopier{cache: secrets, dir: certificateDir(directory)}, nil
}

// NeedLeaderElection returns false: every replica serves webhooks.
func (*CertificateCopier) NeedLeaderElection() bool {
	return false
}

// Start copies until ctx ends or a file cannot be written.
func (m *CertificateCopier) Start(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	informer, err := m.cache.GetInformer(ctx, &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching the certificate Secret: %w", err)
	}
	copyObject := func(object any) {
		if err := m.copyCertificate(ctx, object); err != nil {
			fail(err)
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    copyObject,
		UpdateFunc: func(_, updated any) { copyObject(updated) },
		// After the Secret is deleted, the last certificate remains valid.
	}); err != nil {
		return fmt.Errorf("watching the certificate Secret: %w", err)
	}
	if err := m.cache.Start(ctx); err != nil {
		return err
	}
	return contextCause(ctx)
}

func (m *CertificateCopier) copyCertificate(ctx context.Context, object any) error {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return fmt.Errorf("expected a Secret, got %T", object)
	}
	files := certificateFiles(secret)
	if files == nil {
		return nil // the rotator has not written the certificate yet
	}
	if err := m.dir.writeFiles(files); err != nil {
		return fmt.Errorf("writing the certificate: %w", err)
	}
	log.FromContext(ctx).Info("Certificate written", "directory", string(m.dir))
	return nil
}

// certificateFiles returns the files that the server needs, or nil if the Secret lacks one. The CA's
// private key, which the Secret has too, is not copied.
func certificateFiles(secret *corev1.Secret) map[string][]byte {
	files := map[string][]byte{}
	for _, name := range []string{certFileName, keyFileName, caFileName} {
		if len(secret.Data[name]) == 0 {
			return nil
		}
		files[name] = secret.Data[name]
	}
	return files
}

// contextCause returns the error that cancelled ctx, or nil if the manager stopped.
func contextCause(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() { //nolint:errorlint // compares identity
		return cause
	}
	return nil
}
