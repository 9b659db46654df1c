package controlplane

import (
	"errors"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd returns when etcd accepts requests.
func startEtcd(config Etcd) (*embed.Etcd, error) {
	client, err := url.Parse(config.ClientURL)
	if err != nil {
		return nil, err
	}
	peer, err := url.Parse(config.PeerURL)
	if err != nil {
		return nil, err
	}
	options := embed.NewConfig()
	options.Dir = config.Dir
	options.LogLevel = "error"
	options.ListenClientUrls, options.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	options.ListenPeerUrls, options.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	options.InitialCluster = options.InitialClusterFromName(options.Name)
	// The cluster's state does not outlive the machine's uptime.
	options.UnsafeNoFsync = true
	// A lone member elects itself after one election timeout: 0.1 s, not 1 s.
	options.TickMs, options.ElectionMs = 10, 100

	etcd, err := embed.StartEtcd(options)
	if err != nil {
		return nil, err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err := <-etcd.Err():
		return nil, err
	case <-time.After(30 * time.Second):
		etcd.Close()
		return nil, errors.New("not ready after 30 s")
	}
}
