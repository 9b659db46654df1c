package certs

import (
	"context"
	"crypto/tls"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// Server is a webhook server that starts once its certificate is there.
//
// controller-runtime starts webhook servers before anything else and gives up when
// the certificate is missing, but on a first start it is made only later.
type Server struct {
	webhook.Server

	certDir string
}

// NewServer is a webhook server on port, with the certificate in certDir.
func NewServer(port int, certDir string) *Server {
	return &Server{
		Server:  webhook.NewServer(webhook.Options{Port: port, CertDir: certDir}),
		certDir: certDir,
	}
}

// Start waits for the certificate and serves until ctx ends.
func (s *Server) Start(ctx context.Context) error {
	if err := s.waitForCertificate(ctx); err != nil {
		return nil //nolint:nilerr // Stopped before there was one.
	}
	return s.Server.Start(ctx)
}

func (s *Server) waitForCertificate(ctx context.Context) error {
	const often = 50 * time.Millisecond
	return wait.PollUntilContextCancel(ctx, often, true, func(context.Context) (bool, error) {
		_, err := tls.LoadX509KeyPair(filepath.Join(s.certDir, certFile), filepath.Join(s.certDir, keyFile))
		return err == nil, nil
	})
}
