package controlplane

import (
	"context"

	apimachinery "k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controllermanageroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

func newAPIServer(ctx context.Context, args []string) (func(context.Context) error, error) {
	options := apiserveroptions.NewServerRunOptions()
	if err := parse(options.Flags(), args); err != nil {
		return nil, err
	}
	if err := options.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, err
	}
	completed, err := options.Complete(ctx)
	if err != nil {
		return nil, err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return nil, utilerrors.NewAggregate(errs)
	}
	return func(ctx context.Context) error { return apiserver.Run(ctx, completed) }, nil
}

func newControllerManager(ctx context.Context, args []string) (func(context.Context) error, error) {
	options, err := controllermanageroptions.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, err
	}
	known := controllermanager.KnownControllers()
	disabled := controllermanager.ControllersDisabledByDefault()
	aliases := controllermanager.ControllerAliases()
	flags := options.Flags(known, disabled, aliases)
	options.ParsedFlags = &flags
	if err := parse(flags, args); err != nil {
		return nil, err
	}
	config, err := options.Config(ctx, known, disabled, aliases)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return controllermanager.Run(ctx, config.Complete()) }, nil
}

func newScheduler(ctx context.Context, args []string) (func(context.Context) error, error) {
	options := scheduleroptions.NewOptions()
	if err := parse(*options.Flags, args); err != nil {
		return nil, err
	}
	config, sched, err := scheduler.Setup(ctx, options)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return scheduler.Run(ctx, config, sched) }, nil
}

// rawConfig lets a client request paths outside any API group, such as /readyz.
func rawConfig(config *rest.Config) *rest.Config {
	raw := rest.CopyConfig(config)
	raw.NegotiatedSerializer = apimachinery.NegotiatedSerializer(scheme.Codecs.WithoutConversion())
	return raw
}
