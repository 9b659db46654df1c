package certs

import (
	"context"
	"crypto/tls"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// Server is a webhook server that starts once its certificate exists.
//
// controller-runtime starts webhook servers before everything else and fails without a certificate.
// During the first start, the certificate is created later.
type Server struct {
	webhook.Server

	certDir string
}

// NewServer returns a webhook server for this port with the certificate in certDir.
func NewServer(port int, certDir string) *Server {
	return &Server{
		Server:  webhook.NewServer(webhook.Options{Port: port, CertDir: certDir}),
		certDir: certDir,
	}
}

// Start waits for the certificate and then serves until ctx ends.
func (s *Server) Start(ctx context.Context) error {
	if err := s.waitForCertificate(ctx); err != nil {
		return nil //nolint:nilerr // stopped before the certificate existed
	}
	return s.Server.Start(ctx)
}

func (s *Server) waitForCertificate(ctx context.Context) error {
	const pollInterval = 50 * time.Millisecond
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		_, err := tls.LoadX509KeyPair(filepath.Join(s.certDir, certFileName), filepath.Join(s.certDir, keyFileName))
		return err == nil, nil
	})
}
