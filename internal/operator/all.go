package operator

import (
	"errors"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	agenticsessioncontroller "github.com/yardmaster/yardmaster/internal/kinds/agenticsession/controller"
	jobreportcontroller "github.com/yardmaster/yardmaster/internal/kinds/jobreport/controller"
	policycontroller "github.com/yardmaster/yardmaster/internal/kinds/policy/controller"
	queuecontroller "github.com/yardmaster/yardmaster/internal/kinds/queue/controller"
	schedulecontroller "github.com/yardmaster/yardmaster/internal/kinds/schedule/controller"
	sequentialjobcontroller "github.com/yardmaster/yardmaster/internal/kinds/sequentialjob/controller"
	sessionrunnercontroller "github.com/yardmaster/yardmaster/internal/kinds/sessionrunner/controller"
	workerpoolcontroller "github.com/yardmaster/yardmaster/internal/kinds/workerpool/controller"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
	"github.com/yardmaster/yardmaster/internal/operator/validation"
	"github.com/yardmaster/yardmaster/internal/pod/networkcheck/prober"
)

// AllControllers returns all controllers.
func AllControllers() []Controller {
	return []Controller{{
		Name: "sequentialjob", Kind: kindOf("SequentialJob"), Needs: []schema.GroupVersionKind{kindOf("Policy")},
		Setup: setupSequentialJob, Webhook: validation.SetupSequentialJob,
	}, {
		Name: "queue", Kind: kindOf("Queue"), Needs: []schema.GroupVersionKind{kindOf("Policy")},
		Setup: setupQueue, Webhook: validation.QueueValidator.Setup,
	}, {
		Name: "workerpool", Kind: kindOf("WorkerPool"), Needs: []schema.GroupVersionKind{kindOf("Queue"), kindOf("Policy")},
		Setup: setupWorkerPool, Webhook: validation.WorkerPoolValidator.Setup,
	}, {
		Name: "policy", Kind: kindOf("Policy"), Needs: []schema.GroupVersionKind{kindOf("Queue"), kindOf("WorkerPool")},
		Setup: func(mgr ctrl.Manager, o Options) error {
			return policycontroller.New(mgr).SetupWithManager(mgr, o.Concurrency)
		},
		Webhook: validation.PolicyValidator.Setup,
	}, {
		Name: "agenticsession", Kind: kindOf("AgenticSession"), Needs: []schema.GroupVersionKind{kindOf("SessionRunner"), kindOf("Policy")},
		Setup: setupAgenticSession, Webhook: validation.SetupAgenticSession, Mutates: true,
	}, {
		Name: "egressproxy", Kind: kindOf("SessionRunner"), Needs: []schema.GroupVersionKind{kindOf("AgenticSession")}, Setup: setupEgressProxy,
	}, {
		Name: "schedule", Kind: kindOf("Schedule"), Setup: setupSchedule, Webhook: validation.SetupSchedule, Mutates: true,
	}, {
		Name: "jobreport", Kind: kindOf("JobReport"), Flag: reportNamespacesFlag,
		Setup: func(mgr ctrl.Manager, o Options) error { return jobreportcontroller.SetupWithManager(mgr, o.Report) },
	}}
}

func kindOf(kind string) schema.GroupVersionKind { return v1alpha1.GroupVersion.WithKind(kind) }

func setupSequentialJob(mgr ctrl.Manager, o Options) error {
	pods, err := sequentialjobcontroller.NewCache(mgr, namespaceConfigs(o.Namespaces))
	if err != nil {
		return err
	}
	approvals := kube.NewAdmissionPolicies(mgr.GetAPIReader(), o.ApprovalPolicies, "no approval counts")
	if err := mgr.Add(approvals); err != nil {
		return err
	}
	options := sequentialjobcontroller.Options{Concurrency: o.Concurrency, Pods: pods, ApprovalPolicies: approvals, ArchiveImage: o.WorkerImage}
	return sequentialjobcontroller.New(mgr, options).SetupWithManager(mgr)
}

func setupQueue(mgr ctrl.Manager, o Options) error {
	brokers, err := o.brokerManager()
	if err != nil {
		return err
	}
	return queuecontroller.New(mgr, brokers, queuecontroller.Options{Concurrency: o.Concurrency, SweepInterval: o.QueueSweep, ClusterID: o.ClusterID}).SetupWithManager(mgr)
}

func setupWorkerPool(mgr ctrl.Manager, o Options) error {
	brokers, err := o.brokerManager()
	if err != nil {
		return err
	}
	sources := brokerconn.NewSourceReader(mgr.GetAPIReader(), brokerconn.Options{Dialer: o.dialer})
	if err := mgr.Add(sources); err != nil {
		return err
	}
	options := workerpoolcontroller.Options{Concurrency: o.Concurrency, Image: o.WorkerImage, Sources: sources, OperatorNamespace: o.OperatorNamespace, AdminSecret: o.keySecret()}
	if err := workerpoolcontroller.RegisterMetrics(mgr.GetCache()); err != nil {
		return err
	}
	return workerpoolcontroller.New(mgr, brokers, options).SetupWithManager(mgr)
}

// keySecret returns the Secret with the operator's key; without a name if the operator has no key.
func (o *Options) keySecret() types.NamespacedName {
	if o.OperatorNamespace == "" || o.WorkerAdminSecret == "" {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: o.OperatorNamespace, Name: o.WorkerAdminSecret}
}

func setupAgenticSession(mgr ctrl.Manager, o Options) error {
	children, err := agenticsessioncontroller.NewCache(mgr, namespaceConfigs(o.Namespaces))
	if err != nil {
		return err
	}
	options := agenticsessioncontroller.Options{Concurrency: o.Concurrency, Children: children, Network: o.SessionNetwork, KeySecret: o.keySecret()}
	if options.AdmissionPolicies, err = o.admissionPolicies(); err != nil {
		return err
	}
	if o.NetworkCheckService != "" && o.OperatorNamespace != "" && o.WorkerImage != "" {
		if err := mgr.Add(prober.NewServer()); err != nil {
			return err
		}
		options.NetworkCheck = agenticsession.NetworkCheck{Image: o.WorkerImage, Namespace: o.OperatorNamespace}
		options.OperatorAddresses = prober.NewResolver(o.NetworkCheckService + "." + o.OperatorNamespace + ".svc").Addresses
	}
	return agenticsessioncontroller.New(mgr, options).SetupWithManager(mgr)
}

func setupEgressProxy(mgr ctrl.Manager, o Options) error {
	objects, err := sessionrunnercontroller.NewCache(mgr, namespaceConfigs(o.Namespaces))
	if err != nil {
		return err
	}
	policies, err := o.admissionPolicies()
	if err != nil {
		return err
	}
	return sessionrunnercontroller.New(mgr, sessionrunnercontroller.Options{
		Concurrency: o.Concurrency, Objects: objects, Image: o.WorkerImage, KeySecret: o.keySecret(), Network: o.SessionNetwork, AdmissionPolicies: policies,
	}).SetupWithManager(mgr)
}

// setupSchedule enables only kinds of runs whose controllers run too.
func setupSchedule(mgr ctrl.Manager, o Options) error {
	isEnabled := func(name string) bool {
		return slices.ContainsFunc(o.Controllers, func(c Controller) bool { return c.Name == name })
	}
	options := schedulecontroller.Options{Concurrency: o.Concurrency, SequentialJobs: isEnabled("sequentialjob"), AgenticSessions: isEnabled("agenticsession")}
	if isEnabled("queue") {
		var err error
		if options.Brokers, err = o.brokerManager(); err != nil {
			return err
		}
	}
	return schedulecontroller.New(mgr, options).SetupWithManager(mgr)
}

// brokerManagerOnce creates the Manager for the first controller that needs it, and returns the same Manager to all others. Without
// such a controller, it is not created.
func brokerManagerOnce(mgr ctrl.Manager, o Options) func() (*brokerconn.Manager, error) {
	return sync.OnceValues(func() (*brokerconn.Manager, error) { return newBrokerManager(mgr, o) })
}

// newBrokerManager creates the connections of all controllers that use brokers. The manager closes them.
func newBrokerManager(mgr ctrl.Manager, o Options) (*brokerconn.Manager, error) {
	if o.Broker.URLSecret != "" && o.OperatorNamespace == "" {
		return nil, errors.New("--broker-url-secret is a Secret in the operator's namespace: outside a cluster, --operator-namespace must be given")
	}
	brokers := brokerconn.NewManager(mgr.GetAPIReader(), brokerconn.Options{
		DefaultBroker: o.Broker.Reference(), DefaultNamespace: o.OperatorNamespace, Dialer: o.dialer,
	})
	if err := metric.Register(brokers); err != nil {
		return nil, err
	}
	return brokers, mgr.Add(brokers)
}
