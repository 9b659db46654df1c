package operator

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/informer"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
	"github.com/yardmaster/yardmaster/internal/operator/webhook"
	"github.com/yardmaster/yardmaster/internal/version"
)

const leaderElectionLeaseName = "yardmaster.yardmaster.dev"

// New returns a manager with the selected controllers.
func New(config *rest.Config, o Options) (ctrl.Manager, error) {
	restores := informer.NewRestoreDetector()
	options, err := managerOptions(o, restores)
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = float32(o.KubeAPIQPS), o.KubeAPIBurst
	config.Wrap(kube.IgnoreRetryAfter)
	config.Wrap(informer.RecordNamespaces)
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	if err := mgr.Add(restores); err != nil {
		return nil, err
	}
	if err := checkInstalled(mgr.GetRESTMapper(), o.Controllers); err != nil {
		return nil, err
	}
	if err := checkCreatorsAreRecorded(mgr.GetRESTMapper(), o); err != nil {
		return nil, err
	}
	o.dialer = bounded.NewDialer(o.BrokerNetwork)
	o.brokerManager = brokerManagerOnce(mgr, o)
	o.admissionPolicies = sync.OnceValues(func() (*kube.AdmissionPolicies, error) {
		policies := kube.NewAdmissionPolicies(mgr.GetAPIReader(), o.SessionPolicies, "no session starts")
		return policies, mgr.Add(policies)
	})
	for _, c := range o.Controllers {
		if err := c.Setup(mgr, o); err != nil {
			return nil, fmt.Errorf("setting up controller %s: %w", c.Name, err)
		}
	}
	health := newProbes()
	if o.Webhook.Enabled {
		if err := setupWebhooks(mgr, o, health.ready.Checks); err != nil {
			return nil, err
		}
	}
	if err := health.serve(mgr, o.HealthAddress); err != nil {
		return nil, err
	}
	metric.OmitObjectNames(o.Metrics.OmitObjectNames)
	return mgr, serveMetrics(mgr, o.Metrics)
}

func managerOptions(o Options, restores *informer.RestoreDetector) (ctrl.Options, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return ctrl.Options{}, err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return ctrl.Options{}, err
	}
	cacheOptions, err := cacheOptions(o.Namespaces, restores)
	if err != nil {
		return ctrl.Options{}, err
	}
	options := ctrl.Options{
		Scheme:                  scheme,
		Cache:                   cacheOptions,
		Metrics:                 metricsserver.Options{BindAddress: disabledAddress},
		HealthProbeBindAddress:  disabledAddress,
		PprofBindAddress:        o.PprofAddress,
		LeaderElection:          o.LeaderElection.Enabled,
		LeaderElectionID:        leaderElectionLeaseName,
		LeaderElectionNamespace: o.LeaderElection.Namespace,
		LeaderElectionLabels:    map[string]string{version.LabelName: version.Label()},
		LeaseDuration:           &o.LeaderElection.LeaseDuration,
		RenewDeadline:           &o.LeaderElection.RenewDeadline,
		RetryPeriod:             &o.LeaderElection.RetryPeriod,
		// Safe, because the process exits as soon as the manager stops.
		LeaderElectionReleaseOnCancel: true,
	}
	if o.Webhook.Enabled {
		host := fmt.Sprintf("%s.%s.svc", o.Webhook.Service, o.OperatorNamespace)
		options.WebhookServer = webhook.New(webhook.Options{
			Port:         o.Webhook.Port,
			Directory:    o.Webhook.CertDir,
			Hosts:        []string{host, host + ".cluster.local"},
			ClientCAFile: o.Webhook.ClientCAFile,
		})
	}
	return options, nil
}

// setupWebhooks registers the webhooks, and adds their readiness check.
func setupWebhooks(mgr ctrl.Manager, o Options, checks map[string]healthz.Checker) error {
	for _, c := range o.Controllers {
		if c.Webhook == nil {
			continue
		}
		if err := c.Webhook(mgr); err != nil {
			return fmt.Errorf("setting up the webhook of %s: %w", c.Kind.Kind, err)
		}
	}
	checks["webhook"] = mgr.GetWebhookServer().StartedChecker()
	return nil
}
