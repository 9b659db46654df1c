package manager

import (
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/connection"
	"github.com/yardmaster/yardmaster/internal/controller/agenticsession"
	"github.com/yardmaster/yardmaster/internal/controller/jobreport"
	"github.com/yardmaster/yardmaster/internal/controller/policy"
	"github.com/yardmaster/yardmaster/internal/controller/queue"
	"github.com/yardmaster/yardmaster/internal/controller/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/controller/workerpool"
	webhookv1alpha1 "github.com/yardmaster/yardmaster/internal/webhook/v1alpha1"
)

// All are the controllers there are.
func All() []Controller {
	return []Controller{
		{"sequentialjob", v1alpha1.GroupVersion.WithKind("SequentialJob"), setupSequentialJob, webhookv1alpha1.SetupSequentialJob, ""},
		{"queue", v1alpha1.GroupVersion.WithKind("Queue"), setupQueue, webhookv1alpha1.SetupQueue, ""},
		{"workerpool", v1alpha1.GroupVersion.WithKind("WorkerPool"), setupWorkerPool, webhookv1alpha1.SetupWorkerPool, ""},
		{"policy", v1alpha1.GroupVersion.WithKind("Policy"), setupPolicy, webhookv1alpha1.SetupPolicy, ""},
		{"agenticsession", v1alpha1.GroupVersion.WithKind("AgenticSession"), setupAgenticSession, webhookv1alpha1.SetupAgenticSession, ""},
		{"jobreport", v1alpha1.GroupVersion.WithKind("JobReport"), setupJobReport, nil, reportNamespaces},
	}
}

func setupSequentialJob(mgr ctrl.Manager, o Options) error {
	return sequentialjob.New(mgr).SetupWithManager(mgr, o.Concurrency)
}

func setupQueue(mgr ctrl.Manager, o Options) error {
	keeper, err := o.keeper()
	if err != nil {
		return err
	}
	return queue.New(mgr, keeper, queue.Options{Concurrency: o.Concurrency, Sweep: o.QueueSweep}).SetupWithManager(mgr)
}

func setupWorkerPool(mgr ctrl.Manager, o Options) error {
	keeper, err := o.keeper()
	if err != nil {
		return err
	}
	sources := connection.NewSources(mgr.GetAPIReader(), connection.Options{})
	if err := mgr.Add(sources); err != nil {
		return err
	}
	options := workerpool.Options{Concurrency: o.Concurrency, Image: o.WorkerImage, Sources: sources}
	if err := workerpool.RegisterMetrics(mgr.GetCache()); err != nil {
		return err
	}
	return workerpool.New(mgr, keeper, options).SetupWithManager(mgr)
}

func setupPolicy(mgr ctrl.Manager, o Options) error {
	return policy.New(mgr).SetupWithManager(mgr, o.Concurrency)
}

func setupAgenticSession(mgr ctrl.Manager, o Options) error {
	children, err := agenticsession.NewCache(mgr, inNamespaces(o.Namespaces))
	if err != nil {
		return err
	}
	return agenticsession.New(mgr, agenticsession.Options{Concurrency: o.Concurrency, Children: children}).SetupWithManager(mgr)
}

func setupJobReport(mgr ctrl.Manager, o Options) error {
	return jobreport.SetupWithManager(mgr, o.Report)
}
