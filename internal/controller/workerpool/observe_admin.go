package workerpool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/adminauth"
	"github.com/yardmaster/yardmaster/internal/apierror"
	"github.com/yardmaster/yardmaster/internal/pool"
)

const (
	// adminKeyName is the name of the private key in the Secret.
	adminKeyName = "private.pem"
	// adminKeyAge is the time after which the Secret is read again, so that a key can be replaced.
	adminKeyAge = time.Minute
)

// adminKeyStore remembers the key with which the operator signs requests to workers.
type adminKeyStore struct {
	mu     sync.Mutex
	keys   *adminauth.Keys
	readAt time.Time
}

// observeAdminAccess reads the operator's key, and derives what the workers of the pool need.
func (r *Reconciler) observeAdminAccess(ctx context.Context, observed *observation) error {
	keys, err := r.readAdminKeys(ctx)
	if keys == nil || err != nil {
		return err
	}
	observed.adminKeys = keys
	observed.Operator.Admin = &pool.AdminAccess{PublicKey: keys.PublicKey(), PreStopKey: keys.PreStopKey(string(observed.Pool.UID))}
	return nil
}

// observeNetworkPolicies reads the NetworkPolicies that may select the pool's workers.
func (r *Reconciler) observeNetworkPolicies(ctx context.Context, observed *observation) error {
	if r.options.OperatorNamespace == "" {
		return nil
	}
	var policies networkingv1.NetworkPolicyList
	// A namespace may have one for each of thousands of sessions. They are only read.
	if err := r.Client.List(ctx, &policies, client.InNamespace(observed.Pool.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NetworkPolicies: %w", err)
	}
	observed.NetworkPolicies = policies.Items
	return nil
}

// readAdminKeys returns nil if the operator has no key.
func (r *Reconciler) readAdminKeys(ctx context.Context) (*adminauth.Keys, error) {
	if r.options.AdminSecret.Name == "" {
		return nil, nil //nolint:nilnil // the operator has no key
	}
	r.keys.mu.Lock()
	defer r.keys.mu.Unlock()
	now := r.Clock.Now()
	if !r.keys.readAt.IsZero() && now.Sub(r.keys.readAt) < adminKeyAge {
		return r.keys.keys, nil
	}
	keys, err := r.loadAdminKeys(ctx)
	switch class := apierror.ClassOf(err); {
	case err == nil:
	case errors.Is(err, errInvalidAdminKey), class == apierror.NotFound, class == apierror.PermissionMissing, class == apierror.PolicyDenied:
		// Without a key, pools work as with an operator of an earlier version.
		ctrl.LoggerFrom(ctx).Error(err, "The operator has no key to sign requests to workers, so new workers have no protection from requests of other Pods. "+
			"Install the Secret, and the Role and the admission policy that permit the operator to write it", "secret", r.options.AdminSecret.String())
	case r.keys.keys == nil:
		return nil, err
	default:
		return r.keys.keys, nil // it is read again at the next reconciliation
	}
	r.keys.keys, r.keys.readAt = keys, now
	return keys, nil
}

// errInvalidAdminKey is an error that only a user can correct.
var errInvalidAdminKey = errors.New("remove it from the Secret to get a new key")

// loadAdminKeys reads the key from the Secret, and adds a new key to an empty Secret.
func (r *Reconciler) loadAdminKeys(ctx context.Context) (*adminauth.Keys, error) {
	secret := &corev1.Secret{}
	if err := r.Live.Get(ctx, r.options.AdminSecret, secret); err != nil {
		return nil, fmt.Errorf("reading the key to sign requests to workers: %w", err)
	}
	text := secret.Data[adminKeyName]
	if len(text) == 0 {
		var err error
		if text, err = adminauth.NewPrivateKey(); err != nil {
			return nil, err
		}
		before := secret.DeepCopy()
		secret.Data = map[string][]byte{adminKeyName: text}
		if err := r.Client.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return nil, fmt.Errorf("writing a key to sign requests to workers: %w", err)
		}
	}
	keys, err := adminauth.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("the key %s of Secret %s is invalid: %w; %w", adminKeyName, r.options.AdminSecret, err, errInvalidAdminKey)
	}
	return keys, nil
}

// signRequest returns a token for a request to a worker; empty if the operator has no key.
func (r *Reconciler) signRequest(keys *adminauth.Keys, worker *corev1.Pod, action string) (string, error) {
	if keys == nil {
		return "", nil
	}
	return keys.Sign(adminauth.Request{Worker: worker.Namespace + "/" + worker.Name, Action: action}, r.Clock.Now())
}
