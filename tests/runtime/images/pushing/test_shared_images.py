"""Apps and cronjobs of a process share what packs runtimes into layers."""

from __future__ import annotations

from pathlib import Path

import yaml
from tests.ports import free_port

from moorage.core.artifacts.store import ArtifactStore
from moorage.core.artifacts.unpacked import Unpacked
from moorage.core.net.targets import TargetPolicy
from moorage.engines import make_engines
from moorage.platform import opening
from moorage.runtime.builds.cluster_programs import ClusterPrograms
from moorage.runtime.builds.collect import APP_CAPS
from moorage.runtime.images.sources import Sources
from moorage.settings import Settings


def test_programs_of_one_process_pack_each_runtime_once_at_a_time(tmp_path: Path) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{free_port()}"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    settings = Settings(
        _env_file=None,
        data=tmp_path / "data",
        engine="kubernetes",
        kubeconfig=str(tmp_path / "kubeconfig"),
        registry_url="http://127.0.0.1:9/pods",
        kubernetes_app_image="127.0.0.1:9/base",
    )
    db = opening.open_store(settings).db
    try:
        sites = Unpacked(tmp_path / "sites", APP_CAPS, is_used=lambda _tx, _digest: False)
        engines = make_engines(db, ArtifactStore(db), sites, Sources(TargetPolicy()), is_sandboxed=False)

        apps, cronjobs = engines.app_programs, engines.cronjob_programs
        assert isinstance(apps, ClusterPrograms)
        assert isinstance(cronjobs, ClusterPrograms)
        assert apps.images is cronjobs.images
    finally:
        db.close()
