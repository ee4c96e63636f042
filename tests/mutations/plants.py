"""Faults of every kind, each planted alone into the small demo task, and where it must be caught."""

from __future__ import annotations

from dataclasses import dataclass, field

DATA, OVERFIT, PEAK, TRAIN, RESUME, RELOAD = "data", "overfit", "peak", "train", "resume", "reload"


@dataclass(frozen=True)
class Plant:
    """``caught``: by phase, the codes one of which must be there. ``also``: phases where it may show besides.

    ``cases`` are the numbers of the reports of its kind. ``code`` is the body of ``class Planted(Small)``, with
    ``before`` ahead of it; ``plan`` are lines that are added to the plan. Stages run in order.
    """

    name: str
    cases: str
    caught: dict[str, set[str]]
    code: str = "    pass"
    before: str = ""
    plan: str = ""
    stages: tuple[str, ...] = (DATA,)
    also: dict[str, set[str]] = field(default_factory=dict)


def _labels(change: str) -> str:
    return f"""
    def encode(self, record, max_length=None):
        example = super().encode(record, max_length)
        ids, labels = example["input_ids"], example["labels"]
        spans = self.spans(record, example)
{change}
        return {{"input_ids": ids, "labels": labels}}
"""


PLANTS = [
    # -- the example that reaches the loss ---------------------------------------------------------------------------
    Plant(
        "end token masked by its id",
        "1.01",
        {"examples": {"end_token_unsupervised"}},
        _labels("        labels = [IGNORE if label == END else label for label in labels]"),
    ),
    Plant(
        "end token masked in the collator",
        "1.01",
        {"examples": {"end_token_unsupervised"}},
        """
    def collate(self, examples):
        batch = super().collate(examples)
        batch["labels"][batch["input_ids"] == END] = IGNORE
        return batch
""",
    ),
    Plant(
        "no end token",
        "1.02",
        {"examples": {"missing_end_token"}},
        _labels("        ids, labels = ids[:-1], labels[:-1]"),
    ),
    Plant(
        "no BOS",
        "1.04",
        {"examples": {"bos_count"}},
        """
    def encode(self, record, max_length=None):
        example = super().encode(record)
        return {key: each[1:][:max_length] for key, each in example.items()}

    def spans(self, record, example):
        whole = {"input_ids": [BOS, *example["input_ids"]]}
        return [(start - 1, end - 1, role, turn) for start, end, role, turn in super().spans(record, whole)]
""",
    ),
    Plant(
        "BOS twice",
        "1.04",
        {"examples": {"bos_count"}},
        """
    def encode(self, record, max_length=None):
        example = super().encode(record)
        ids, labels = [BOS, *example["input_ids"]], [IGNORE, *example["labels"]]
        return {"input_ids": ids[:max_length], "labels": labels[:max_length]}

    def spans(self, record, example):
        return [(start + 1, end + 1, role, turn) for start, end, role, turn in super().spans(record, example)]
""",
    ),
    Plant(
        "response marker not found in some rows",
        "1.05",
        {"examples": {"no_supervised_token"}},
        _labels("""        if record["id"].endswith("-0") and len(ids) % 3 == 0:
            labels = [IGNORE] * len(ids)"""),
    ),
    Plant(
        "responses cut by the length",
        "1.07",
        {"examples": {"response_truncated", "no_supervised_token"}},
        plan="data: {unit: conversation_id, max_length: 90}\n",
    ),
    Plant(
        "a cap below the planned length",
        "1.08",
        {"examples": {"length_cap"}},
        """
    def encode(self, record, max_length=None):
        return super().encode(record, None if max_length is None else min(100, max_length))
""",
    ),
    Plant(
        "a cap that the task never speaks of",
        "1.08",
        {"examples": {"length_cap"}},
        """
    def encode(self, record, max_length=None):
        return super().encode(record, 100)
""",
    ),
    Plant(
        "only the last answer has labels",
        "1.10",
        {"examples": {"turn_unsupervised"}},
        _labels("""        for start, end, role, turn in spans:
            if turn != len(record["messages"]) - 1:
                labels[start:end] = [IGNORE] * (end - start)"""),
    ),
    Plant(
        "the question is trained on",
        "1.11",
        {"examples": {"wrong_role_supervised"}},
        _labels("        labels = [IGNORE, *ids[1:]]"),
    ),
    Plant(
        "the mask runs on behind an answer",
        "1.13",
        {"examples": {"wrong_role_supervised"}},
        _labels("""        first = next(start for start, end, role, turn in spans if role == "assistant")
        labels = [*labels[:first], *ids[first:]]"""),
    ),
    Plant(
        "the template drops a line of each answer",
        "1.14",
        {"examples": {"content_lost"}},
        """
    def encode(self, record, max_length=None):
        turns = [dict(each, content=each["content"].replace("a", "")) for each in record["messages"]]
        return super().encode({**record, "messages": turns}, max_length)

    def spans(self, record, example):
        turns = [dict(each, content=each["content"].replace("a", "")) for each in record["messages"]]
        return super().spans({**record, "messages": turns}, example)
""",
    ),
    Plant(
        "turns after the second are lost",
        "1.19",
        {"examples": {"message_lost"}},
        """
    def encode(self, record, max_length=None):
        return super().encode({**record, "messages": record["messages"][:2]}, max_length)

    def spans(self, record, example):
        return super().spans({**record, "messages": record["messages"][:2]}, example)
""",
    ),
    Plant(
        "labels one place ahead",
        "3.x",
        {"examples": {"span_shifted"}},
        _labels("        labels = [*labels[1:], IGNORE]"),
    ),
    Plant(
        "labels on padding",
        "1.01",
        {"examples": {"padding_supervised"}},
        """
    def collate(self, examples):
        batch = super().collate(examples)
        batch["labels"][(batch["input_ids"] == PAD) & (batch["labels"] == IGNORE)] = PAD
        return batch
""",
    ),
    Plant(
        "answers without a word",
        "D14",
        {"examples": {"empty_target"}},
        """
    def records(self, split):
        rows = super().records(split)
        blank = [dict(each, content=" ") if each["role"] == "assistant" else each for each in rows[2]["messages"]]
        return [*rows[:2], {**rows[2], "messages": blank}, *rows[3:]] if split == "train" else rows
""",
    ),
    Plant(
        "two rows of one id",
        "D12",
        {"examples": {"duplicate_ids"}},
        """
    def records(self, split):
        rows = super().records(split)
        return [*rows[:3], {**rows[3], "id": rows[4]["id"]}, *rows[4:]] if split == "train" else rows
""",
    ),
    # -- leakage by unit ---------------------------------------------------------------------------------------------
    Plant(
        "turns of one conversation on both sides",
        "2.02",
        {"splits": {"unit_in_two_splits"}},
        """
    def records(self, split):
        rows = super().records(split)
        if split != "validation":
            return rows
        unit = super().records("train")[5]["conversation_id"]
        return [{**rows[0], "conversation_id": unit}, *rows[1:]]
""",
    ),
    Plant(
        "no unit is known",
        "2.03",
        {"splits": {"unit_unknown"}},
        """
    def unit(self, record):
        raise NotDefined("unit")
""",
        "from tui_pilot.tasks.base import NotDefined\n",
        plan="data: {max_length: 512}\n",
    ),
    Plant(
        "rows of train validate",
        "2.06",
        {"splits": {"same_rows", "unit_in_two_splits"}},
        """
    def records(self, split):
        rows = super().records(split)
        return [*rows, *super().records("train")[:2]] if split == "validation" else rows
""",
    ),
    Plant(
        "the same text under another id",
        "2.05 2.09",
        {"splits": {"same_rows", "near_duplicate"}},
        """
    def records(self, split):
        rows = super().records(split)
        copy = {**super().records("train")[7], "id": "other-1", "conversation_id": "other"}
        return [*rows, copy] if split == "validation" else rows
""",
    ),
    # -- the tiny overfit --------------------------------------------------------------------------------------------
    Plant(
        "the graph is cut behind the embedding",
        "3.02",
        {"overfit": {"no_gradient"}},
        """
    def build_model(self):
        torch.manual_seed(self.plan.seed)
        return Cut(width=32, layers=2, heads=2)
""",
        """
class Cut(TinyDecoder):
    def forward(self, input_ids):
        places = torch.arange(input_ids.shape[1])
        hidden = (self.embed(input_ids) + self.place(places)).detach()
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


""",
        stages=(OVERFIT,),
    ),
    Plant(
        "the optimizer holds half the model",
        "3.05",
        {"overfit": {"untouched_tensor"}},
        """
    def build_optimizer(self, model):
        kept = [each for name, each in model.named_parameters() if not name.startswith("blocks.1.")]
        return torch.optim.AdamW(kept, lr=self.plan.optimizer.lr, weight_decay=0.0)
""",
        stages=(OVERFIT,),
    ),
    Plant(
        "an adapter is planned and the whole model trains",
        "3.05",
        {"overfit": {"trainable_set_differs"}},
        plan="model: {adapter: {kind: lora, r: 4, alpha: 8, targets: [qkv]}}\n",
        stages=(OVERFIT,),
    ),
    Plant(
        "labels shifted twice",
        "3.x",
        {"overfit": {"recovers_shifted_ids"}},
        """
    def loss(self, model, batch):
        logits = model(batch["input_ids"])[:, :-2].float()
        targets = batch["labels"][:, 2:]
        total = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum")
        return total

    def count(self, batch):
        return int((batch["labels"][:, 2:] != IGNORE).sum())
""",
        stages=(OVERFIT,),
    ),
    Plant(
        "statistics that lag behind",
        "3.08",
        {"overfit": {"train_eval_gap"}},
        """
    def build_model(self):
        return Lagging(width=32, layers=2, heads=2)
""",
        """
class Lagging(TinyDecoder):
    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.middle = nn.BatchNorm1d(32, momentum=0.0005)

    def forward(self, input_ids):
        places = torch.arange(input_ids.shape[1])
        hidden = self.embed(input_ids) + self.place(places) + torch.linspace(-8, 8, 32)
        hidden = self.middle(hidden.transpose(1, 2)).transpose(1, 2)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


""",
        stages=(OVERFIT,),
    ),
    Plant(
        "the loss climbs",
        "3.x",
        {"overfit": {"loss_not_falling", "not_recovered"}},
        """
    def build_optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), lr=self.plan.optimizer.lr, maximize=True)
""",
        stages=(OVERFIT,),
    ),
    Plant(
        "attention over padding turns to NaN",
        "3.11",
        {"overfit": {"not_finite"}},
        """
    def loss(self, model, batch):
        total, count = super().loss(model, batch)
        lengths = (batch["input_ids"] != PAD).sum(1)
        return total / (lengths == lengths.max()).float().min() * (lengths == lengths.max()).float().min(), count
""",
        stages=(OVERFIT,),
    ),
    Plant(
        "updates below bf16",
        "6.09",
        {"overfit": {"update_below_precision"}},
        plan="precision: bf16\noptimizer: {lr: 1.0e-6}\n",
        stages=(OVERFIT,),
        also={"overfit": {"not_recovered"}},
    ),
    # -- load, forward and the memory phases -------------------------------------------------------------------------
    Plant(
        "weights drawn before the seed",
        "9.03",
        {"load": {"seed_after_build"}},
        """
    def build_model(self):
        torch.manual_seed(random.SystemRandom().randrange(2**31))
        return super().build_model()
""",
        stages=(PEAK,),
    ),
    Plant(
        "another precision than planned",
        "6.10",
        {"load": {"dtype_differs"}},
        """
    def build_model(self):
        return super().build_model().to(torch.bfloat16)
""",
        stages=(PEAK,),
    ),
    Plant(
        "packed documents see each other",
        "1.17",
        {"forward": {"packed_documents_leak"}},
        """
    def collate(self, examples):
        batch = super().collate(examples)
        places = torch.arange(batch["input_ids"].shape[1])
        batch["documents"] = (places >= 40).long().expand_as(batch["input_ids"])
        return batch
""",
        stages=(PEAK,),
    ),
    Plant(
        "tensors kept from every forward",
        "4.05",
        {"steady_step": {"memory_grows"}},
        """
    def loss(self, model, batch):
        total, count = super().loss(model, batch)
        if torch.is_grad_enabled():
            self.kept = [*getattr(self, "kept", []), torch.zeros(400_000)]
        return total, count
""",
        stages=(PEAK,),
    ),
    Plant(
        "a stale copy of the weights answers",
        "6.07",
        {"steady_step": {"update_not_seen"}},
        """
    def loss(self, model, batch):
        if not hasattr(self, "stale"):
            self.stale = {name: each.detach().clone() for name, each in model.named_parameters()}
        changed = {name: self.stale[name] + (each - each.detach()) for name, each in model.named_parameters()}
        logits = torch.func.functional_call(model, changed, (batch["input_ids"],))[:, :-1].float()
        targets = batch["labels"][:, 1:]
        total = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum")
        return total, int((targets != IGNORE).sum())
""",
        stages=(PEAK,),
    ),
    Plant(
        "all logits are kept in evaluation",
        "4.01",
        {"evaluate": {"logits_kept"}},
        """
    def loss(self, model, batch):
        if not torch.is_grad_enabled():
            self.history = [*getattr(self, "history", []), model(batch["input_ids"]).clone()]
        return super().loss(model, batch)
""",
        stages=(PEAK,),
    ),
    Plant(
        "the planned metric is not computed",
        "9.02",
        {"evaluate": {"metric_missing"}},
        plan="evaluate: {rows: 8, metric: accuracy, direction: max}\n",
        stages=(PEAK,),
    ),
    Plant(
        "evaluation trains",
        "9.05",
        {"evaluate": {"state_changed"}},
        """
    def loss(self, model, batch):
        if not model.training:
            with torch.no_grad():
                model.head.weight.mul_(1.001)
        return super().loss(model, batch)
""",
        stages=(PEAK,),
    ),
    # -- effective batch and updates ---------------------------------------------------------------------------------
    Plant(
        "a mean where a sum is asked",
        "5.02 11.05",
        {"batch": {"loss_not_token_weighted", "gradient_scaled"}},
        """
    def loss(self, model, batch):
        total, count = super().loss(model, batch)
        return total / max(1, count)
""",
        stages=(TRAIN,),
    ),
    Plant(
        "the smoothed loss alone is a mean",
        "5.03",
        {"batch": {"loss_not_token_weighted", "gradient_scaled"}},
        """
    def loss(self, model, batch):
        total, count = super().loss(model, batch)
        return total / max(1, count) if self.plan.loss.label_smoothing else total
""",
        plan="loss: {label_smoothing: 0.1}\n",
        stages=(TRAIN,),
    ),
    Plant(
        "count and loss count differently",
        "5.08",
        {"batch": {"sources_disagree"}},
        """
    def count(self, batch):
        return int((batch["input_ids"] != PAD).sum())
""",
        stages=(TRAIN,),
    ),
    Plant(
        "no window is ever full",
        "5.05 5.06",
        {"batch": {"no_update"}},
        plan="batch: {micro: 16, accumulation: 4, drop_last: true, tail: drop}\n",
        stages=(TRAIN,),
    ),
    Plant(
        "after warm-up the rate falls to the start",
        "9.08",
        {"batch": {"lr_curve_differs"}},
        """
    def build_scheduler(self, optimizer, updates):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / 4 if step < 4 else 0.001)
""",
        stages=(TRAIN,),
    ),
    Plant(
        "every epoch in file order",
        "7.06",
        {"batch": {"order_differs"}},
        """
    def order(self, split, epoch, seed):
        return list(range(len(self.records(split))))
""",
        stages=(TRAIN,),
    ),
    Plant(
        "an order that is another each time",
        "7.05",
        {"batch": {"order_differs"}},
        """
    def order(self, split, epoch, seed):
        rows = list(range(len(self.records(split))))
        random.SystemRandom().shuffle(rows)
        return rows
""",
        stages=(TRAIN,),
    ),
    Plant(
        "rows twice and rows never",
        "7.08",
        {"batch": {"order_differs"}},
        """
    def order(self, split, epoch, seed):
        rows = list(range(len(self.records(split))))
        random.Random(seed * 1000 + epoch).shuffle(rows)
        return [*rows[:-4], *rows[:4]]
""",
        stages=(TRAIN,),
    ),
    # -- checkpoint, export ------------------------------------------------------------------------------------------
    Plant(
        "trained but not saved",
        "3.06 8.03",
        {"export": {"trained_not_saved"}},
        """
    def save_artifact(self, model, folder):
        state = {name: each for name, each in model.state_dict().items() if not name.startswith("embed.")}
        torch.save(state, folder / "weights.pt")

    def load_artifact(self, folder):
        model = self.build_model()
        model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True), strict=False)
        return model
""",
        stages=(TRAIN,),
    ),
    Plant(
        "an export without weights",
        "8.10",
        {"export": {"empty_artifact"}},
        """
    def save_artifact(self, model, folder):
        (folder / "README.md").write_text("done")

    def load_artifact(self, folder):
        return self.build_model()
""",
        stages=(TRAIN,),
    ),
    Plant(
        "tensors of no elements",
        "8.04",
        {"export": {"empty_artifact", "trained_not_saved"}},
        """
    def save_artifact(self, model, folder):
        torch.save({name: torch.zeros(0) for name in model.state_dict()}, folder / "weights.pt")
""",
        stages=(TRAIN,),
    ),
    Plant(
        "an artifact that runs code",
        "8.09",
        {"export": {"unsafe_artifact"}},
        """
    def save_artifact(self, model, folder):
        torch.save(model, folder / "weights.pt")
""",
        stages=(TRAIN,),
    ),
    Plant(
        "a save that keeps a copy",
        "4.05",
        {"export": {"residue"}},
        """
    def build_model(self):
        model = super().build_model()
        kept = []
        model.register_state_dict_post_hook(lambda *rest: kept.append(torch.zeros(500_000)))
        return model
""",
        stages=(TRAIN,),
    ),
    # -- resume in a new process -------------------------------------------------------------------------------------
    Plant(
        "the schedule starts again",
        "7.02",
        {"resume": {"scheduler_restarted"}},
        """
    def build_scheduler(self, optimizer, updates):
        return Forgets(optimizer, lambda step: 1 / (1 + step))
""",
        """
class Forgets(torch.optim.lr_scheduler.LambdaLR):
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        return None


""",
        stages=(TRAIN, RESUME),
        also={"checkpoint": {"state_missing"}},
    ),
    Plant(
        "the optimizer forgets its moments",
        "7.02",
        {"resume": {"optimizer_not_restored"}},
        """
    def build_optimizer(self, model):
        return Forgets(model.parameters(), lr=self.plan.optimizer.lr)
""",
        """
class Forgets(torch.optim.AdamW):
    def load_state_dict(self, state):
        return None


""",
        stages=(TRAIN, RESUME),
    ),
    Plant(
        "noise from a stream of its own",
        "7.09",
        {"resume": {"rng_not_restored", "loss_diverges"}},
        """
    def __init__(self, plan):
        super().__init__(plan)
        self.noise = random.Random(plan.seed)

    def loss(self, model, batch):
        total, count = super().loss(model, batch)
        return total * (1 + 0.01 * self.noise.random() * model.training), count
""",
        stages=(TRAIN, RESUME),
        also={"batch": {"loss_not_token_weighted", "gradient_scaled"}},
    ),
    Plant(
        "the order hangs on the process",
        "7.05",
        {"resume": {"order_differs", "rows_repeated", "rows_skipped"}},
        """
    def order(self, split, epoch, seed):
        rows = list(range(len(self.records(split))))
        random.Random(f"{os.getpid()} {epoch}").shuffle(rows)
        return rows
""",
        "import os\n",
        stages=(TRAIN, RESUME),
    ),
    Plant(
        "loaded for inference",
        "7.11",
        {"resume": {"trainable_lost"}},
        """
    def build_model(self):
        model = super().build_model()
        model.blocks.requires_grad_("resume" not in sys.argv)
        return model
""",
        "import sys\n",
        stages=(TRAIN, RESUME),
    ),
    # -- reload from the artifact alone ------------------------------------------------------------------------------
    Plant(
        "keys that match nothing under a lenient load",
        "8.06 8.07",
        {"reload": {"adapter_keys_unmatched", "outputs_differ", "tensors_missing"}},
        """
    def save_artifact(self, model, folder):
        torch.save({f"_orig_mod.{name}": each for name, each in model.state_dict().items()}, folder / "weights.pt")

    def load_artifact(self, folder):
        model = self.build_model()
        model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True), strict=False)
        return model
""",
        stages=(TRAIN, RELOAD),
        also={"export": {"trained_not_saved"}},
    ),
    Plant(
        "weights rounded on the way out",
        "8.01",
        {"reload": {"outputs_differ"}},
        """
    def save_artifact(self, model, folder):
        state = {name: (each * 4).round() / 4 for name, each in model.state_dict().items()}
        torch.save(state, folder / "weights.pt")

    def load_artifact(self, folder):
        model = self.build_model()
        model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
        return model
""",
        stages=(TRAIN, RELOAD),
        also={"export": {"trained_not_saved"}},
    ),
    Plant(
        "two tensors change places on reload",
        "8.01",
        {"reload": {"outputs_differ"}},
        """
    def load_artifact(self, folder):
        model = super().load_artifact(folder)
        with torch.no_grad():
            model.blocks[0].up.weight.copy_(model.blocks[1].up.weight)
        return model
""",
        stages=(TRAIN, RELOAD),
        also={"reload": {"tensors_missing"}},
    ),
]
