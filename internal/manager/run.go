package manager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// Run runs the operator until ctx ends. It then waits for running reconciliations and releases the
// Lease. The process must exit after Run returns.
func Run(ctx context.Context, config *rest.Config, o Options) error {
	logger := zap.New(zap.UseFlagOptions(&o.Log))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger) // client-go logs through klog

	if err := o.detectNamespaces(); err != nil {
		return err
	}
	mgr, err := New(config, o)
	if err != nil {
		return err
	}
	tuneMemory()
	logger.Info("Starting", "version", Version(), "controllers", controllerNames(o.Controllers), "namespaces", o.Namespaces)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	logger.Info("Stopped")
	return nil
}

// garbageCollectorPercent makes the garbage collector keep the heap at one and a half times the live
// data instead of twice: the operator mostly consists of caches, and memory is scarcer than CPU.
const garbageCollectorPercent = 50

// tuneMemory sets gcPercent, unless GOGC is set.
func tuneMemory() {
	if _, found := os.LookupEnv("GOGC"); !found {
		debug.SetGCPercent(garbageCollectorPercent)
	}
}

// serviceAccountNamespace is the file with the name of a Pod's namespace.
const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// detectNamespaces sets the namespaces of the operator and its Lease if no flag does.
func (o *Options) detectNamespaces() error {
	if o.OperatorNamespace == "" {
		namespace, err := os.ReadFile(serviceAccountNamespace)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		o.OperatorNamespace = strings.TrimSpace(string(namespace))
	}
	if o.LeaderElection.Namespace == "" {
		o.LeaderElection.Namespace = o.OperatorNamespace
	}
	selfManaged := o.Webhook.Enabled && o.Webhook.CertManagement == CertManagementSelf
	if o.OperatorNamespace == "" && selfManaged {
		return errors.New("outside a cluster, --operator-namespace must be given, or --webhook=false")
	}
	if o.LeaderElection.Enabled && o.LeaderElection.Namespace == "" {
		return errors.New("outside a cluster, --leader-election-namespace must be given, or --leader-elect=false")
	}
	return nil
}
